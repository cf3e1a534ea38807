-- audit_purge: delete expired audit entries.
DELETE FROM {schema}onceward_audit WHERE number IN (
    SELECT number FROM {schema}onceward_audit
    WHERE at <= coalesce($1::bigint, {now}) - $2::bigint LIMIT $3::bigint
)
