-- latest_insert_marks: insert marks that do not exist or have expired, in the order of their ids. Returns how many.
WITH claimed AS (
    INSERT INTO {schema}onceward_marks AS mine (id, content, message, created_at, expires_at)
    SELECT id, content, message, $4::bigint, $5::bigint
    FROM unnest($1::bytea[], $2::bytea[], $3::text[]) AS one (id, content, message) ORDER BY id
    ON CONFLICT (id) DO UPDATE SET
        content = excluded.content, message = excluded.message,
        created_at = excluded.created_at, expires_at = excluded.expires_at
    WHERE mine.expires_at <= excluded.created_at
    RETURNING 1
)
SELECT count(*) FROM claimed
