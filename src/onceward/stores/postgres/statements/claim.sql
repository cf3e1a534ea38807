-- claim: gives each key that has no record one; shows the record of each key that has one, and writes nothing there.
-- A key whose advisory lock is taken is being claimed inside somebody's open transaction: `free` is false.
-- Neither made nor shown nor taken: another claim was faster. Ask again.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), asked AS MATERIALIZED (
    SELECT * FROM unnest(
        $2::bytea[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::bytea[], $8::text[], $9::bigint[],
        $10::bigint[], $11::text[], $12::text[], $13::bigint[]
    ) AS one (id, scope, key, nonce, lease, fingerprint, arguments, after_crash, max_attempts, owner, note, lock)
), found AS MATERIALIZED (
    SELECT record.* FROM asked CROSS JOIN LATERAL (
        SELECT xmin AS version, {columns} FROM {schema}onceward_records WHERE id = asked.id LIMIT 1
    ) AS record
), absent AS MATERIALIZED (
    SELECT asked.*, pg_try_advisory_xact_lock_shared(lock) AS free FROM asked
    WHERE NOT EXISTS (SELECT FROM found WHERE found.id = asked.id)
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
)
SELECT clock.now, asked.id, made.id IS NOT NULL AS made, coalesce(absent.free, true) AS free, found.*
FROM clock CROSS JOIN asked
    LEFT JOIN made ON made.id = asked.id AND made.nonce = asked.nonce
    LEFT JOIN absent ON absent.id = asked.id
    LEFT JOIN found ON found.id = asked.id
