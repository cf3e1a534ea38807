-- history_lock: read which life of its key each record is in, and keep purge and erasure from deleting it until the
-- transaction ends. Claims, renewals and settlements are not blocked.
SELECT id, state, token, coalesce(cycle, token) AS cycle FROM {schema}onceward_records
WHERE id = ANY ($1::bytea[]) ORDER BY id FOR KEY SHARE
