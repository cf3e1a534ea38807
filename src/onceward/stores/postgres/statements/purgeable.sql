-- purgeable: ids of records that look expired. Candidates only: `transitions.purgeable` decides again.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), old AS MATERIALIZED (
    SELECT now, now - $2::bigint AS token, now - $3::bigint AS given_up FROM clock
)
SELECT old.now, found.id FROM old LEFT JOIN LATERAL (
    (
        SELECT id FROM {schema}onceward_records
        WHERE valid_until IS NOT NULL AND greatest{purgeable_from} <= old.now AND coalesce(min_reader, 1) <= {reader}
        ORDER BY greatest{purgeable_from} LIMIT $4::bigint
    ) UNION ALL (
        SELECT id FROM {schema}onceward_records
        WHERE state IS NOT NULL AND state = 'FREE' AND token < old.token AND coalesce(min_reader, 1) <= {reader}
        LIMIT $4::bigint
    ) UNION ALL (
        SELECT id FROM {schema}onceward_records
        WHERE state IS NOT NULL AND state = 'PENDING' AND lease_until <= old.given_up AND token < old.token
            AND coalesce(min_reader, 1) <= {reader} AND coalesce(after_crash, 0) = $5::bigint AND released IS NOT TRUE
            AND (coalesce(max_attempts, 0) = 0 OR coalesce(attempt, 1) < max_attempts)
        LIMIT $4::bigint
    )
    LIMIT $4::bigint
) AS found ON true
