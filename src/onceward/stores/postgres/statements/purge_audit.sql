-- purge_audit: entries that are older than they are kept.
DELETE FROM {schema}onceward_audit WHERE number IN (
    SELECT number FROM {schema}onceward_audit
    WHERE at <= coalesce($1::bigint, {now}) - $2::bigint LIMIT $3::bigint
)
