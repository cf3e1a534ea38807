-- complete: COMPLETED, for those who still own their key; shows the record of the others, and writes nothing there.
-- What is not shown was done, and is otherwise as its owner has it: written last when they saw it, with the same note.
-- What was done to any other record is shown as it is now. If nothing is left to show, there is one row with the time.
-- A row that somebody's open transaction has locked is not waited for: it is shown like the others.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), asked AS MATERIALIZED (
    SELECT * FROM unnest(
        $2::bytea[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[], $7::boolean[], $8::bigint[], $9::bigint[],
        $10::bigint[], $11::bigint[], $12::text[]
    ) AS one (id, token, nonce, result, digest, stored, lasting, until, slide, seen, note)
), owned AS MATERIALIZED (
    SELECT asked.*, record.place, record.differs FROM asked CROSS JOIN LATERAL (
        SELECT
            ctid AS place,
            (state = 'PENDING' AND updated_at = asked.seen AND note IS NOT DISTINCT FROM asked.note) IS NOT TRUE AS differs
        FROM {schema}onceward_records
        WHERE id = asked.id AND token = asked.token AND nonce = asked.nonce AND min_reader <= {reader}
            AND (state = 'PENDING' AND NOT released OR state = 'PARKED')
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS record
), done AS (
    UPDATE {schema}onceward_records AS mine SET
        state = 'COMPLETED', updated_at = now, lease_until = NULL, ask_first = false,
        result = owned.result, digest = owned.digest, stored = owned.stored,
        error_type = '', error = '', final = false, retry_at = NULL,
        valid_until = coalesce(owned.until, now + owned.lasting), slide = owned.slide
    FROM clock, owned WHERE mine.ctid = owned.place
    RETURNING mine.id, owned.differs, CASE WHEN owned.differs THEN mine END AS record
), rest AS MATERIALIZED (
    SELECT id FROM asked WHERE NOT EXISTS (SELECT FROM done WHERE done.id = asked.id)
)
SELECT clock.now, rest.id, false AS done, record.*
FROM clock LEFT JOIN rest ON true LEFT JOIN LATERAL (
    SELECT xmin AS version, {columns} FROM {schema}onceward_records WHERE id = rest.id LIMIT 1
) AS record ON true
UNION ALL
SELECT clock.now, done.id, true, NULL, {light_of_done} FROM clock CROSS JOIN done WHERE done.differs
