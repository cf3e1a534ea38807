-- lookup_one: like lookup, for a single key.
SELECT coalesce($1::bigint, {now}) AS now, {columns} FROM {schema}onceward_records WHERE id = $2::bytea
