-- The newest state of entities, and the messages and events that are known: for the guard against old events.
-- An entity without a value was deleted; its order stays until it expires, so that older events do not bring it back.
-- The fill factor leaves room beside each row for its next version: then no index is touched.
CREATE TABLE {schema}onceward_newest (
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
CREATE INDEX onceward_newest_expiring ON {schema}onceward_newest (expires_at) WHERE expires_at IS NOT NULL
;
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
