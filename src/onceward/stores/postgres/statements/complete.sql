-- complete: set COMPLETED (NULL) where the caller still owns the key. For the other keys, return the record and write
-- nothing. Keys that are not returned were completed. If all were completed, there is one row with only the time.
--
-- Open transactions are not waited for. A row that was never locked since it was written has xmax 0; any other row is
-- locked with SKIP LOCKED, and returned if that fails. A lock taken between this check and the update is most likely a
-- short one of Onceward (a renewal, a repeated call). If it is a long transaction, `lock_timeout` ends the wait, and the
-- repeated statement finds the lock.
--
-- The plan must be one loop over the requests, in the order of the ids, each found by the primary key, even if it was
-- made while the table was empty. ANY, and a comparison of the state that no index supports, leave the planner no
-- alternative.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now, set_config('lock_timeout', '50ms', true)
), done AS (
    UPDATE {schema}onceward_records AS mine SET
        state = NULL, updated_at = now, lease_until = NULL, ask_first = NULL,
        result = asked.result, digest = nullif(asked.digest, ''), stored = nullif(asked.stored, true),
        error_type = NULL, error = NULL, final = NULL, retry_at = NULL,
        valid_until = coalesce(asked.until, now + asked.lasting), slide = nullif(asked.slide, 0)
    FROM clock CROSS JOIN (
        SELECT
            unnest($2::bytea[]) AS id, unnest($3::bigint[]) AS token, unnest($4::bytea[]) AS nonce,
            unnest($5::bytea[]) AS result, unnest($6::bytea[]) AS digest, unnest($7::boolean[]) AS stored,
            unnest($8::bigint[]) AS lasting, unnest($9::bigint[]) AS until, unnest($10::bigint[]) AS slide
    ) AS asked
    WHERE mine.id = ANY (ARRAY[asked.id]) AND mine.token = asked.token AND mine.nonce = asked.nonce
        AND mine.state IS NOT DISTINCT FROM 'PENDING' AND mine.released IS NOT TRUE
        AND coalesce(mine.min_reader, 1) <= {reader}
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
