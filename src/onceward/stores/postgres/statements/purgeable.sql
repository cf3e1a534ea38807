-- purgeable: records that look expired, without their results, found by index. Candidates only:
-- `transitions.purgeable` decides again, and `delete` skips those that have changed meanwhile.
-- Each call continues where the previous one ended ($6, $7): an index keeps the entries of deleted rows until a vacuum,
-- and reading all of them again for every chunk would take quadratic time.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), old AS MATERIALIZED (
    SELECT now, now - $2::bigint AS token, now - $3::bigint AS given_up FROM clock
)
SELECT old.now, found.* FROM old LEFT JOIN LATERAL (
    (
        SELECT xmin AS version, {columns_without_result} FROM {schema}onceward_records
        WHERE valid_until IS NOT NULL AND greatest{purgeable_from} BETWEEN $6::bigint AND old.now
            AND coalesce(min_reader, 1) <= {reader}
        ORDER BY greatest{purgeable_from} LIMIT $4::bigint
    ) UNION ALL (
        SELECT xmin AS version, {columns_without_result} FROM {schema}onceward_records
        WHERE state = 'FREE' AND token BETWEEN $7::bigint AND old.token - 1 AND coalesce(min_reader, 1) <= {reader}
        ORDER BY token LIMIT $4::bigint
    ) UNION ALL (
        SELECT xmin AS version, {columns_without_result} FROM {schema}onceward_records
        WHERE state = 'PENDING' AND lease_until <= old.given_up AND token < old.token
            AND coalesce(min_reader, 1) <= {reader} AND coalesce(after_crash, 0) = $5::bigint AND released IS NOT TRUE
            AND (coalesce(max_attempts, 0) = 0 OR coalesce(attempt, 1) < max_attempts)
        LIMIT $4::bigint
    )
    LIMIT $4::bigint
) AS found ON true
