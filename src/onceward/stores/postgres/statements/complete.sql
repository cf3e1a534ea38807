-- complete: COMPLETED, for those who still own their key; shows the record of the others, and writes nothing there.
-- What is not shown was done: whatever it was if `seen` is missing, else as its owner saw it, with the same note.
-- If nothing is left to show, there is one row with the time alone.
--
-- No open transaction is waited for. A row that nobody has locked since it was written has no xmax; any other is asked
-- for, and shown if it cannot be had. Who locks a row between that look and its update is most likely one of ours, and
-- gone in a moment: a renewal, a call that is repeated. Should it be somebody's long transaction, `lock_timeout` ends
-- the wait, all is asked again, and by then the lock is seen.
--
-- It is to be one loop over what is asked, in the order of the ids, each found by the primary key, even if the plan was
-- made while the table was empty. ANY, and a state that is no constant, leave the planner no other way.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now, set_config('lock_timeout', '50ms', true)
), done AS (
    UPDATE {schema}onceward_records AS mine SET
        state = 'COMPLETED', updated_at = now, lease_until = NULL, ask_first = false,
        result = asked.result, digest = asked.digest, stored = asked.stored,
        error_type = '', error = '', final = false, retry_at = NULL,
        valid_until = coalesce(asked.until, now + asked.lasting), slide = asked.slide
    FROM clock CROSS JOIN (
        SELECT
            'PENDING' AS state, unnest($2::bytea[]) AS id, unnest($3::bigint[]) AS token, unnest($4::bytea[]) AS nonce,
            unnest($5::bytea[]) AS result, unnest($6::bytea[]) AS digest, unnest($7::boolean[]) AS stored,
            unnest($8::bigint[]) AS lasting, unnest($9::bigint[]) AS until, unnest($10::bigint[]) AS slide,
            unnest($11::bigint[]) AS seen, unnest($12::text[]) AS note
    ) AS asked
    WHERE mine.id = ANY (ARRAY[asked.id]) AND mine.token = asked.token AND mine.nonce = asked.nonce
        AND mine.state = asked.state AND NOT mine.released AND mine.min_reader <= {reader}
        AND (asked.seen IS NULL OR mine.updated_at = asked.seen AND mine.note IS NOT DISTINCT FROM asked.note)
        AND CASE
            WHEN mine.xmax = 0 THEN true
            ELSE EXISTS (
                SELECT FROM {schema}onceward_records AS same WHERE same.id = asked.id FOR NO KEY UPDATE SKIP LOCKED
            )
        END
    RETURNING mine.id
), rest AS MATERIALIZED (
    SELECT id FROM unnest($2::bytea[]) AS asked (id)
    WHERE (SELECT count(*) FROM done) < cardinality($2::bytea[])
        AND NOT EXISTS (SELECT FROM done WHERE done.id = asked.id)
)
SELECT clock.now, rest.id, record.*
FROM clock LEFT JOIN rest ON true LEFT JOIN LATERAL (
    SELECT xmin AS version, {columns} FROM {schema}onceward_records WHERE id = rest.id LIMIT 1
) AS record ON true
