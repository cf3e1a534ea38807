-- complete: COMPLETED, for those who still own their key; shows the record of the others, and writes nothing there.
-- A row that somebody's open transaction has locked is not waited for: it is shown like the others.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), asked AS MATERIALIZED (
    SELECT * FROM unnest(
        $2::bytea[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[], $7::boolean[], $8::bigint[], $9::bigint[],
        $10::bigint[]
    ) AS one (id, token, nonce, result, digest, stored, lasting, until, slide)
), owned AS MATERIALIZED (
    SELECT record.id FROM asked CROSS JOIN LATERAL (
        SELECT id FROM {schema}onceward_records
        WHERE id = asked.id AND token = asked.token AND nonce = asked.nonce AND min_reader <= {reader}
            AND (state = 'PENDING' AND NOT released OR state = 'PARKED')
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS record
), done AS (
    UPDATE {schema}onceward_records AS mine SET
        state = 'COMPLETED', updated_at = now, lease_until = NULL, ask_first = false,
        result = asked.result, digest = asked.digest, stored = asked.stored,
        error_type = '', error = '', final = false, retry_at = NULL,
        valid_until = coalesce(asked.until, now + asked.lasting), slide = asked.slide
    FROM clock, asked, owned WHERE mine.id = asked.id AND owned.id = asked.id
    RETURNING mine.xmin AS version, {light_of_mine}
)
SELECT clock.now, asked.id, true AS done, done.* FROM clock CROSS JOIN asked JOIN done ON done.id = asked.id
UNION ALL
SELECT clock.now, asked.id, false, record.*
FROM clock CROSS JOIN asked LEFT JOIN LATERAL (
    SELECT xmin AS version, {columns} FROM {schema}onceward_records WHERE id = asked.id LIMIT 1
) AS record ON true
WHERE NOT EXISTS (SELECT FROM done WHERE done.id = asked.id)
