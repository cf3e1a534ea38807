-- look: the records under these ids, as far as there are any, each with the time. Can only read.
SELECT coalesce($1::bigint, {now}) AS now, {columns} FROM {schema}onceward_records WHERE id = ANY ($2::bytea[])
