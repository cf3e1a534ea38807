-- The latest state of entities, and the marks of known messages and events.
-- An entity without a value was deleted; its order is kept until it expires, so that older events do not restore it.
-- The fill factor leaves room for the next version of each row on the same page: then no index is updated.
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
