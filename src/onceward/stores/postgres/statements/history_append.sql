-- history_append: insert events. Events that may happen many times are counted; the same last time means that the same
-- write is repeated.
INSERT INTO {schema}onceward_history AS mine (
    id, token, name, at, last_at, count, attempt, owner, error_type, error, retry_at, detail
)
SELECT * FROM unnest(
    $1::bytea[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],
    $9::text[], $10::text[], $11::bigint[], $12::text[]
) AS given (id, token, name, at, last_at, count, attempt, owner, error_type, error, retry_at, detail)
ORDER BY given.id, given.token, given.name
ON CONFLICT (id, token, name) DO UPDATE SET
    at = least(mine.at, excluded.at),
    last_at = greatest(mine.last_at, excluded.last_at),
    count = mine.count + excluded.count
WHERE excluded.last_at <> mine.last_at AND mine.name IN ('renewed', 'replayed', 'mismatch')
