-- renew: extend the lease where the caller still owns the key; return the record of the other keys. Skips locked rows.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), asked AS MATERIALIZED (
    SELECT * FROM unnest($2::bytea[], $3::bigint[], $4::bytea[], $5::bigint[]) AS one (id, token, nonce, lease)
), owned AS MATERIALIZED (
    SELECT record.id FROM asked CROSS JOIN LATERAL (
        SELECT id FROM {schema}onceward_records
        WHERE id = asked.id AND token = asked.token AND nonce = asked.nonce AND coalesce(min_reader, 1) <= {reader}
            AND state = 'PENDING' AND released IS NOT TRUE
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS record
), done AS (
    UPDATE {schema}onceward_records AS mine SET
        lease_until = CASE WHEN mine.lease_until IS NOT NULL THEN now + asked.lease END,
        renewed_at = now, updated_at = now
    FROM clock, asked, owned WHERE mine.id = asked.id AND owned.id = asked.id
    RETURNING mine.xmin AS version, {columns_of_mine}
)
SELECT clock.now, asked.id, true AS done, done.* FROM clock CROSS JOIN asked JOIN done ON done.id = asked.id
UNION ALL
SELECT clock.now, asked.id, false, record.*
FROM clock CROSS JOIN asked LEFT JOIN LATERAL (
    SELECT xmin AS version, {columns} FROM {schema}onceward_records WHERE id = asked.id LIMIT 1
) AS record ON true
WHERE NOT EXISTS (SELECT FROM done WHERE done.id = asked.id)
