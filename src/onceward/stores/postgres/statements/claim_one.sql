-- claim_one: like claim, for a single key: with the batch statement, a lone replay takes 1.3 × as long.
-- If it returns neither an insert nor a record, the key is locked or another claim was faster; claim finds out which.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), found AS MATERIALIZED (
    SELECT xmin AS version, {columns} FROM {schema}onceward_records WHERE id = $2::bytea
), made AS (
    INSERT INTO {schema}onceward_records (
        id, scope, key, state, token, nonce, updated_at, lease_until,
        after_crash, max_attempts, fingerprint, arguments, owner, note
    )
    SELECT
        $2::bytea, $3::text, $4::text, 'PENDING', now, $5::bytea, now, now + $6::bigint,
        nullif($9::bigint, 0), nullif($10::bigint, 0), nullif($7::bytea, ''), $8::text, nullif($11::text, ''), $12::text
    FROM clock WHERE NOT EXISTS (SELECT FROM found) AND pg_try_advisory_xact_lock_shared($13::bigint)
    ON CONFLICT (id) DO NOTHING
    RETURNING true AS made
)
SELECT clock.now, made.made, found.* FROM clock LEFT JOIN made ON true LEFT JOIN found ON true
