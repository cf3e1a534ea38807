-- What processes have counted: a row for each hour (since 1970) of each process, written over as it goes on counting.
-- The fill factor leaves room beside each row for its next version. counts is JSON, by scope and name.
CREATE TABLE {schema}onceward_counters (
    hour         bigint NOT NULL,
    number       bigint NOT NULL,
    process      bytea  NOT NULL,
    counts       text   NOT NULL,
    PRIMARY KEY (hour, process)
) WITH (
    fillfactor = 50
)
