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
