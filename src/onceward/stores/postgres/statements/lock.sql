-- lock: nobody else writes these records until the transaction ends. In the order of their ids.
SELECT id FROM {schema}onceward_records WHERE id = ANY ($1::bytea[]) ORDER BY id FOR NO KEY UPDATE
