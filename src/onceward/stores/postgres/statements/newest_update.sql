-- newest_update: as newest_move, for entities that are all there: no row is locked before it is written, and what an
-- entity is called need not be sent. `enable_seqscan` is off, and no join but one lookup after the other goes by ANY:
-- so they are taken in the order that they are given in, and no plan outlives the size that the table had.
UPDATE {schema}onceward_newest AS mine SET
    ordering = given.ordering, value = given.value,
    updated_at = $5::bigint, expires_at = CASE WHEN given.value IS NULL THEN $6::bigint END
FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[]) AS given (id, ordering, value, met)
WHERE mine.id = ANY (ARRAY[given.id]) AND mine.ordering = given.met AND mine.min_reader <= {reader}
