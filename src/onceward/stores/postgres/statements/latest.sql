-- latest: the states of these entities that exist and have not expired.
SELECT state.* FROM unnest($2::bytea[]) AS asked (id) CROSS JOIN LATERAL (
    SELECT id, scope, entity, ordering, value, updated_at, expires_at FROM {schema}onceward_latest
    WHERE id = asked.id LIMIT 1
) AS state
WHERE state.expires_at IS NULL OR state.expires_at > coalesce($1::bigint, {now})
