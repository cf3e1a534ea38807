-- look_one: as look, for a key that comes alone.
SELECT coalesce($1::bigint, {now}) AS now, {columns} FROM {schema}onceward_records WHERE id = $2::bytea
