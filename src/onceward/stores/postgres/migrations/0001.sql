-- Times are microseconds since 1970. Columns of fixed width come first, wide columns last: this keeps rows small.
CREATE TABLE {schema}onceward_meta (
    name  text   NOT NULL PRIMARY KEY,
    value bigint NOT NULL
)
;
-- NULL stands for the usual value, and takes no space. state: COMPLETED; attempt and min_reader: 1; stored: true;
-- cycle, created_at and claimed_at: the token; renewed_at: claimed_at; in the other columns 0, false, empty or none.
-- Other states: PENDING, FAILED, PARKED, FREE. after_crash: NULL rerun, 1 verify, 2 park.
-- `scope`, `key` and the other texts are for people; only `id` (SHA-256) decides whether two keys are the same.
CREATE TABLE {schema}onceward_records (
    token        bigint   NOT NULL,
    updated_at   bigint   NOT NULL,
    valid_until  bigint,
    lease_until  bigint,
    cycle        bigint,
    created_at   bigint,
    claimed_at   bigint,
    renewed_at   bigint,
    retry_at     bigint,
    slide        bigint,
    attempt      bigint,
    max_attempts bigint,
    after_crash  smallint,
    min_reader   smallint,
    ask_first    boolean,
    released     boolean,
    stored       boolean,
    final        boolean,
    id           bytea    NOT NULL PRIMARY KEY,
    state        text     COLLATE "C",
    nonce        bytea,
    fingerprint  bytea,
    digest       bytea,
    scope        text     COLLATE "C" NOT NULL,
    key          text     COLLATE "C" NOT NULL,
    owner        text     COLLATE "C",
    error_type   text     COLLATE "C",
    error        text     COLLATE "C",
    arguments    text,
    note         text,
    result       bytea
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
)
;
-- The time from which a record may be purged: its end, but not before its token is an hour old.
CREATE INDEX onceward_purgeable ON {schema}onceward_records (greatest(valid_until, token + 3600000001))
    WHERE valid_until IS NOT NULL
;
-- For listings by the last claim, and for recovery. It stays small, because work completes.
CREATE INDEX onceward_unfinished ON {schema}onceward_records (state, token, id) WHERE state IS NOT NULL
;
-- For listings of all records by the last claim. Its condition is always true, but only listings repeat it: so a plan
-- that was made while the table was empty never reads this index to find a record by its key.
CREATE INDEX onceward_newest ON {schema}onceward_records (token) WHERE token > 0
;
-- For people: the records with the usual values written out, and with readable times.
CREATE VIEW {schema}onceward_keys AS SELECT
    scope, key, coalesce(state, 'COMPLETED') AS state, coalesce(attempt, 1) AS attempt,
    to_timestamp(coalesce(created_at, token) / 1000000.0) AS created_at,
    to_timestamp(coalesce(claimed_at, token) / 1000000.0) AS claimed_at,
    to_timestamp(updated_at / 1000000.0) AS updated_at,
    to_timestamp(lease_until / 1000000.0) AS lease_until,
    to_timestamp(retry_at / 1000000.0) AS retry_at,
    to_timestamp(valid_until / 1000000.0) AS valid_until,
    coalesce(owner, '') AS owner, coalesce(error_type, '') AS error_type, coalesce(error, '') AS error, note, token, id
FROM {schema}onceward_records
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
;
-- The latest state of entities. An entity without a value was deleted; its order is kept until it expires, so that
-- older events do not restore it.
-- The fill factor leaves room for the next version of each row on the same page: then no index is updated.
CREATE TABLE {schema}onceward_latest (
    updated_at   bigint   NOT NULL,
    expires_at   bigint,
    min_reader   smallint NOT NULL DEFAULT 1,
    id           bytea    NOT NULL PRIMARY KEY,
    ordering     bytea    NOT NULL,
    scope        text     COLLATE "C" NOT NULL,
    entity       text     COLLATE "C" NOT NULL,
    value        bytea
) WITH (
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.02
)
;
CREATE INDEX onceward_latest_expiring ON {schema}onceward_latest (expires_at) WHERE expires_at IS NOT NULL
;
-- The marks of known messages and events.
CREATE TABLE {schema}onceward_marks (
    created_at   bigint   NOT NULL,
    expires_at   bigint   NOT NULL,
    id           bytea    NOT NULL PRIMARY KEY,
    content      bytea    NOT NULL,
    message      text     COLLATE "C" NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
)
;
CREATE INDEX onceward_marks_expiring ON {schema}onceward_marks (expires_at)
;
-- Counters: one row per process and hour (since 1970), overwritten as the process keeps counting.
-- The fill factor leaves room for the next version of each row on the same page. counts is JSON, by scope and name.
CREATE TABLE {schema}onceward_counters (
    hour         bigint NOT NULL,
    number       bigint NOT NULL,
    process      bytea  NOT NULL,
    counts       text   NOT NULL,
    PRIMARY KEY (hour, process)
) WITH (
    fillfactor = 50
)
;
-- The history of keys: at most 50 events each, deleted with their record. last_at is the time of the last of count
-- equal events. The fill factor leaves room for the next version of an event that is counted.
CREATE TABLE {schema}onceward_history (
    token        bigint  NOT NULL,
    at           bigint  NOT NULL,
    last_at      bigint  NOT NULL,
    count        bigint  NOT NULL DEFAULT 1,
    attempt      bigint  NOT NULL DEFAULT 0,
    retry_at     bigint  NOT NULL DEFAULT 0,
    id           bytea   NOT NULL,
    name         text    COLLATE "C" NOT NULL,
    owner        text    COLLATE "C" NOT NULL DEFAULT '',
    error_type   text    COLLATE "C" NOT NULL DEFAULT '',
    error        text    COLLATE "C" NOT NULL DEFAULT '',
    detail       text    COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (id, token, name)
) WITH (
    fillfactor = 80
)
