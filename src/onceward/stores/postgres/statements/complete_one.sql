-- complete_one: like complete, for a single key. Returns the time if it was completed.
UPDATE {schema}onceward_records AS mine SET
    state = NULL, updated_at = clock.now, lease_until = NULL, ask_first = NULL,
    result = $5::bytea, digest = nullif($6::bytea, ''), stored = nullif($7::boolean, true),
    error_type = NULL, error = NULL, final = NULL, retry_at = NULL,
    valid_until = coalesce($9::bigint, clock.now + $8::bigint), slide = nullif($10::bigint, 0)
FROM (SELECT coalesce($1::bigint, {now}) AS now) AS clock
WHERE mine.ctid = (
    SELECT ctid FROM {schema}onceward_records
    WHERE id = $2::bytea AND token = $3::bigint AND nonce = $4::bytea AND coalesce(min_reader, 1) <= {reader}
        AND state = 'PENDING' AND released IS NOT TRUE
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING clock.now
