-- latest_entities: the entities of a scope that have a value, in the order of their ids, after the cursor.
SELECT id, scope, entity, ordering, value, updated_at, expires_at FROM {schema}onceward_latest
WHERE id > $2::bytea AND scope = $1::text AND value IS NOT NULL
ORDER BY id LIMIT $3::bigint
