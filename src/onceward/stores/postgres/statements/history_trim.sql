-- history_trim: delete the oldest events of these records beyond the limit.
DELETE FROM {schema}onceward_history AS mine USING (
    SELECT id, token, name, row_number() OVER (PARTITION BY id ORDER BY last_at DESC, token DESC, name DESC) AS position
    FROM {schema}onceward_history WHERE id = ANY ($1::bytea[])
) AS old
WHERE old.position > $2::bigint AND mine.id = old.id AND mine.token = old.token AND mine.name = old.name
