-- lookup: the existing records of these ids, each with the time. Read-only.
SELECT coalesce($1::bigint, {now}) AS now, {columns} FROM {schema}onceward_records WHERE id = ANY ($2::bytea[])
