-- history_delete: delete the events of these records.
DELETE FROM {schema}onceward_history WHERE id = ANY ($1::bytea[])
