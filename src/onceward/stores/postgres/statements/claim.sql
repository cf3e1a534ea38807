-- claim: gives each key that has no record one; shows the others with the record that they have, and writes nothing
-- there. What is not shown was made; if nothing is left to show, there is one row with the time alone.
-- A key whose advisory lock is taken is being claimed inside somebody's open transaction: `free` is false.
-- Shown without a record, and free: another claim was faster. Ask again.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), asked AS MATERIALIZED (
    SELECT * FROM unnest(
        $2::bytea[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::bytea[], $8::text[], $9::bigint[],
        $10::bigint[], $11::text[], $12::text[], $13::bigint[]
    ) AS one (id, scope, key, nonce, lease, fingerprint, arguments, after_crash, max_attempts, owner, note, lock)
), absent AS MATERIALIZED (
    SELECT asked.*, pg_try_advisory_xact_lock_shared(lock) AS free FROM asked
    WHERE NOT EXISTS (SELECT FROM {schema}onceward_records AS found WHERE found.id = asked.id OFFSET 0)
), made AS (
    INSERT INTO {schema}onceward_records AS mine (
        id, scope, key, state, token, nonce, cycle, attempt, created_at, claimed_at, updated_at, renewed_at,
        lease_until, after_crash, max_attempts, fingerprint, arguments, owner, note
    )
    SELECT
        id, scope, key, 'PENDING', now, nonce, now, 1, now, now, now, now,
        now + lease, after_crash, max_attempts, fingerprint, arguments, owner, note
    FROM absent CROSS JOIN clock WHERE free ORDER BY id
    ON CONFLICT (id) DO NOTHING
    RETURNING mine.id, mine.nonce
), rest AS MATERIALIZED (
    SELECT id, NOT EXISTS (SELECT FROM absent WHERE absent.id = asked.id AND NOT absent.free) AS free FROM asked
    WHERE NOT EXISTS (SELECT FROM made WHERE made.id = asked.id AND made.nonce = asked.nonce)
)
SELECT clock.now, rest.id, rest.free, record.*
FROM clock LEFT JOIN rest ON true LEFT JOIN LATERAL (
    SELECT xmin AS version, {columns} FROM {schema}onceward_records WHERE id = rest.id LIMIT 1
) AS record ON true
