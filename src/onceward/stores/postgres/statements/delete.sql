-- delete: delete records that still have the version that was read. Skips locked rows; returns the deleted ids.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::bytea[], $2::xid[]) AS one (id, version)
), seen AS MATERIALIZED (
    SELECT record.id FROM given CROSS JOIN LATERAL (
        SELECT id FROM {schema}onceward_records WHERE id = given.id AND xmin = given.version FOR UPDATE SKIP LOCKED
    ) AS record
)
DELETE FROM {schema}onceward_records AS mine USING seen WHERE mine.id = seen.id RETURNING mine.id
