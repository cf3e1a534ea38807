-- history_read: the latest events of a record, the latest first.
SELECT id, token, name, at, last_at, count, attempt, owner, error_type, error, retry_at, detail
FROM {schema}onceward_history WHERE id = $1::bytea ORDER BY last_at DESC, token DESC, name DESC LIMIT $2::bigint
