-- latest_marks: these marks, if they have not expired.
SELECT mark.* FROM unnest($2::bytea[]) AS asked (id) CROSS JOIN LATERAL (
    SELECT id, content, message, created_at, expires_at FROM {schema}onceward_marks WHERE id = asked.id LIMIT 1
) AS mark
WHERE mark.expires_at > coalesce($1::bigint, {now})
