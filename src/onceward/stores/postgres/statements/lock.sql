-- lock: lock these records until the transaction ends, in the order of their ids.
SELECT id FROM {schema}onceward_records WHERE id = ANY ($1::bytea[]) ORDER BY id FOR NO KEY UPDATE
