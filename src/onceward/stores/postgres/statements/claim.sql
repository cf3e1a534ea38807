-- claim: insert a record for each key that has none. For the other keys, return the existing record and write nothing.
-- Keys that are not returned were inserted; if all were inserted, there is one row with only the time.
-- If the advisory lock of a key is taken, an open transaction is claiming it: `free` is false.
-- A row without a record, but free: another claim was faster. Repeat the request.
-- The ids are sorted and inserted one after the other, so that two batches never deadlock.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), made AS (
    INSERT INTO {schema}onceward_records AS mine (
        id, scope, key, state, token, nonce, updated_at, lease_until,
        after_crash, max_attempts, fingerprint, arguments, owner, note
    )
    SELECT
        id, scope, key, 'PENDING', now, nonce, now, now + lease,
        nullif(after_crash, 0), nullif(max_attempts, 0), nullif(fingerprint, ''), arguments, nullif(owner, ''), note
    FROM clock CROSS JOIN (
        SELECT
            unnest($2::bytea[]) AS id, unnest($3::text[]) AS scope, unnest($4::text[]) AS key,
            unnest($5::bytea[]) AS nonce, unnest($6::bigint[]) AS lease, unnest($7::bytea[]) AS fingerprint,
            unnest($8::text[]) AS arguments, unnest($9::bigint[]) AS after_crash, unnest($10::bigint[]) AS max_attempts,
            unnest($11::text[]) AS owner, unnest($12::text[]) AS note, unnest($13::bigint[]) AS lock
    ) AS asked
    WHERE CASE
        WHEN EXISTS (SELECT FROM {schema}onceward_records AS found WHERE found.id = asked.id OFFSET 0) THEN false
        ELSE pg_try_advisory_xact_lock_shared(lock)
    END
    ON CONFLICT (id) DO NOTHING
    RETURNING mine.id, mine.nonce
), rest AS MATERIALIZED (
    SELECT id, lock FROM unnest($2::bytea[], $5::bytea[], $13::bigint[]) AS asked (id, nonce, lock)
    WHERE (SELECT count(*) FROM made) < cardinality($2::bytea[])
        AND NOT EXISTS (SELECT FROM made WHERE made.id = asked.id AND made.nonce = asked.nonce)
)
SELECT
    clock.now, rest.id,
    CASE WHEN record.version IS NULL AND rest.id IS NOT NULL THEN pg_try_advisory_xact_lock_shared(rest.lock) END AS free,
    record.*
FROM clock LEFT JOIN rest ON true LEFT JOIN LATERAL (
    SELECT xmin AS version, {columns} FROM {schema}onceward_records WHERE id = rest.id LIMIT 1
) AS record ON true
