-- complete_one: like complete, for a single key. Returns the time if it was completed.
UPDATE {schema}onceward_records AS mine SET
    state = 'COMPLETED', updated_at = clock.now, lease_until = NULL, ask_first = false,
    result = $5::bytea, digest = $6::bytea, stored = $7::boolean,
    error_type = '', error = '', final = false, retry_at = NULL,
    valid_until = coalesce($9::bigint, clock.now + $8::bigint), slide = $10::bigint
FROM (SELECT coalesce($1::bigint, {now}) AS now) AS clock
WHERE mine.ctid = (
    SELECT ctid FROM {schema}onceward_records
    WHERE id = $2::bytea AND token = $3::bigint AND nonce = $4::bytea AND min_reader <= {reader}
        AND state = 'PENDING' AND NOT released
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING clock.now
