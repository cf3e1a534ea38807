-- newest_hold: nobody else changes these entities until the transaction ends. In the order of their ids, in one pass.
-- No lock holds a row that is not there, so those get one that has expired already.
INSERT INTO {schema}onceward_newest AS mine (id, scope, entity, ordering, updated_at, expires_at)
SELECT id, scope, entity, '', 0, 0 FROM unnest($1::bytea[], $2::text[], $3::text[]) AS one (id, scope, entity)
ORDER BY id
ON CONFLICT (id) DO UPDATE SET updated_at = mine.updated_at WHERE false
