-- counters_expire: delete expired rows. Skips locked rows.
WITH old AS MATERIALIZED (
    SELECT hour, process FROM {schema}onceward_counters
    WHERE hour < (coalesce($1::bigint, {now}) - $2::bigint) / 3600000000
    ORDER BY hour LIMIT $3::bigint FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {schema}onceward_counters AS mine USING old
    WHERE mine.hour = old.hour AND mine.process = old.process RETURNING 1
)
SELECT count(*) FROM gone
