-- lock_one: a record for this transaction, if it is the version that was seen and nobody has locked it.
SELECT id FROM {schema}onceward_records WHERE id = $1::bytea AND xmin = $2::xid FOR NO KEY UPDATE SKIP LOCKED
