-- delete: these records, if they are still the versions that were seen. Waits for no row lock; tells which went.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::bytea[], $2::xid[]) AS one (id, version)
), seen AS MATERIALIZED (
    SELECT record.id FROM given CROSS JOIN LATERAL (
        SELECT id FROM {schema}onceward_records WHERE id = given.id AND xmin = given.version FOR UPDATE SKIP LOCKED
    ) AS record
)
DELETE FROM {schema}onceward_records AS mine USING seen WHERE mine.id = seen.id RETURNING mine.id
