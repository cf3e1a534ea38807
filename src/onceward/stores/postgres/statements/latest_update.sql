-- latest_update: like latest_upsert, for entities that all exist: no row is locked before it is written, and the names
-- of the entities need not be sent. `enable_seqscan` is off, and ANY leaves only a nested loop with index lookups. So
-- rows are locked in the order of the parameters, and the plan does not depend on the size that the table had.
UPDATE {schema}onceward_latest AS mine SET
    ordering = given.ordering, value = given.value,
    updated_at = $5::bigint, expires_at = CASE WHEN given.value IS NULL THEN $6::bigint END
FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[]) AS given (id, ordering, value, met)
WHERE mine.id = ANY (ARRAY[given.id]) AND mine.ordering = given.met AND mine.min_reader <= {reader}
