-- counters_read: the rows from this hour on that have not expired, and the time even if there are none.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
)
SELECT clock.now, mine.process, mine.hour, mine.number, mine.counts
FROM clock LEFT JOIN {schema}onceward_counters AS mine
    ON mine.hour >= greatest($2::bigint, (clock.now - $3::bigint) / 3600000000)
ORDER BY mine.hour, mine.process
