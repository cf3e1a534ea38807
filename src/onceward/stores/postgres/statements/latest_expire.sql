-- latest_expire: delete expired marks and deleted entities. Skips locked rows.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), old_marks AS MATERIALIZED (
    SELECT id FROM {schema}onceward_marks WHERE expires_at <= (SELECT now FROM clock)
    ORDER BY expires_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED
), old_states AS MATERIALIZED (
    SELECT id FROM {schema}onceward_latest
    WHERE expires_at IS NOT NULL AND expires_at <= (SELECT now FROM clock) AND min_reader <= {reader}
    ORDER BY expires_at LIMIT (SELECT $2::bigint - count(*) FROM old_marks) FOR UPDATE SKIP LOCKED
), marks AS (
    DELETE FROM {schema}onceward_marks AS mine USING old_marks WHERE mine.id = old_marks.id RETURNING 1
), states AS (
    DELETE FROM {schema}onceward_latest AS mine USING old_states WHERE mine.id = old_states.id RETURNING 1
)
SELECT (SELECT count(*) FROM marks) + (SELECT count(*) FROM states)
