-- write: write each record if it still has the version that was read. Skips locked rows.
-- Returns for each whether it was written; if not, whether no open transaction holds the key's advisory lock (`free`).
WITH given AS MATERIALIZED (
    SELECT * FROM unnest({every_array}, ${after_every}::xid[], ${after_that}::boolean[], ${at_last}::bigint[])
        AS one ({columns}, version, same_result, lock)
), seen AS MATERIALIZED (
    SELECT record.id FROM given CROSS JOIN LATERAL (
        SELECT id FROM {schema}onceward_records WHERE id = given.id AND xmin = given.version
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS record
), written AS (
    UPDATE {schema}onceward_records AS mine SET
        {assignments},
        result = CASE WHEN given.same_result THEN mine.result ELSE given.result END
    FROM given, seen WHERE mine.id = given.id AND seen.id = given.id AND mine.xmin = given.version
    RETURNING mine.id
)
SELECT given.id, written.id IS NOT NULL AS written,
    CASE WHEN written.id IS NULL THEN pg_try_advisory_xact_lock_shared(given.lock) ELSE true END AS free
FROM given LEFT JOIN written ON written.id = given.id
