-- Columns of fixed width come first, wide columns last: this keeps rows small.
-- `scope`, `key` and the other texts are for people; only `id` (SHA-256) decides whether two keys are the same.
CREATE TABLE {schema}onceward_meta (
    name  text   NOT NULL PRIMARY KEY,
    value bigint NOT NULL
)
;
CREATE TABLE {schema}onceward_records (
    token        bigint   NOT NULL,
    cycle        bigint   NOT NULL DEFAULT 0,
    attempt      bigint   NOT NULL DEFAULT 0,
    created_at   bigint   NOT NULL DEFAULT 0,
    claimed_at   bigint   NOT NULL DEFAULT 0,
    updated_at   bigint   NOT NULL DEFAULT 0,
    renewed_at   bigint   NOT NULL DEFAULT 0,
    lease_until  bigint,
    max_attempts bigint   NOT NULL DEFAULT 0,
    retry_at     bigint,
    valid_until  bigint,
    slide        bigint   NOT NULL DEFAULT 0,
    after_crash  smallint NOT NULL DEFAULT 0,
    min_reader   smallint NOT NULL DEFAULT 1,
    ask_first    boolean  NOT NULL DEFAULT false,
    released     boolean  NOT NULL DEFAULT false,
    stored       boolean  NOT NULL DEFAULT true,
    final        boolean  NOT NULL DEFAULT false,
    id           bytea    NOT NULL PRIMARY KEY,
    state        text     COLLATE "C" NOT NULL,
    nonce        bytea    NOT NULL DEFAULT '',
    fingerprint  bytea    NOT NULL DEFAULT '',
    digest       bytea    NOT NULL DEFAULT '',
    scope        text     COLLATE "C" NOT NULL,
    key          text     COLLATE "C" NOT NULL,
    owner        text     COLLATE "C" NOT NULL DEFAULT '',
    error_type   text     COLLATE "C" NOT NULL DEFAULT '',
    error        text     COLLATE "C" NOT NULL DEFAULT '',
    arguments    text,
    note         text,
    result       bytea
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
)
;
CREATE INDEX onceward_ending ON {schema}onceward_records (valid_until, token) WHERE valid_until IS NOT NULL
;
CREATE INDEX onceward_unfinished ON {schema}onceward_records (state, id) WHERE state <> 'COMPLETED'
;
CREATE TABLE {schema}onceward_audit (
    number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           bigint NOT NULL,
    verb         text   COLLATE "C" NOT NULL,
    who          text   COLLATE "C" NOT NULL,
    why          text   COLLATE "C" NOT NULL DEFAULT '',
    detail       text   COLLATE "C" NOT NULL DEFAULT '',
    id           bytea  NOT NULL DEFAULT '',
    scope        text   COLLATE "C" NOT NULL DEFAULT '',
    key          text   COLLATE "C" NOT NULL DEFAULT '',
    state_before text   COLLATE "C" NOT NULL DEFAULT '',
    state_after  text   COLLATE "C" NOT NULL DEFAULT '',
    token_before bigint NOT NULL DEFAULT 0,
    token_after  bigint NOT NULL DEFAULT 0,
    count        bigint NOT NULL DEFAULT 1
)
;
CREATE INDEX onceward_audit_at ON {schema}onceward_audit (at)
;
CREATE INDEX onceward_audit_id ON {schema}onceward_audit (id)
