-- purgeable: ids of records that look expired. Candidates only: `transitions.purgeable` decides again.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, {now}) AS now
), old AS MATERIALIZED (
    SELECT now, now - $2::bigint AS token, now - $3::bigint AS given_up FROM clock
)
SELECT old.now, found.id FROM old LEFT JOIN LATERAL (
    (
        SELECT id FROM {schema}onceward_records
        WHERE valid_until IS NOT NULL AND valid_until <= old.now AND token < old.token AND min_reader <= {reader}
        ORDER BY valid_until LIMIT $4::bigint
    ) UNION ALL (
        SELECT id FROM {schema}onceward_records
        WHERE state <> 'COMPLETED' AND state = 'FREE' AND token < old.token AND min_reader <= {reader}
        LIMIT $4::bigint
    ) UNION ALL (
        SELECT id FROM {schema}onceward_records
        WHERE state <> 'COMPLETED' AND state = 'PENDING' AND lease_until <= old.given_up AND token < old.token
            AND min_reader <= {reader} AND after_crash = $5::bigint AND NOT released
            AND (max_attempts = 0 OR attempt < max_attempts)
        LIMIT $4::bigint
    )
    LIMIT $4::bigint
) AS found ON true
