-- counters_save: write rows, replacing those of the same process and hour unless they are newer; return the time.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), kept AS (
    INSERT INTO {schema}onceward_counters AS mine (hour, process, number, counts)
    SELECT given.hour, given.process, given.number, given.counts
    FROM unnest($2::bigint[], $3::bytea[], $4::bigint[], $5::text[]) AS given (hour, process, number, counts)
    ORDER BY given.hour
    ON CONFLICT (hour, process) DO UPDATE SET number = excluded.number, counts = excluded.counts
    WHERE mine.number < excluded.number
    RETURNING 1
)
SELECT now, (SELECT count(*) FROM kept) FROM clock
