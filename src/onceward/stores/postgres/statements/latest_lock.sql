-- latest_lock: lock these entities until the transaction ends, in the order of their ids, in one pass.
-- A row that does not exist cannot be locked, so missing entities get a row that has already expired.
INSERT INTO {schema}onceward_latest AS mine (id, scope, entity, ordering, updated_at, expires_at)
SELECT id, scope, entity, '', 0, 0 FROM unnest($1::bytea[], $2::text[], $3::text[]) AS one (id, scope, entity)
ORDER BY id
ON CONFLICT (id) DO UPDATE SET updated_at = mine.updated_at WHERE false
