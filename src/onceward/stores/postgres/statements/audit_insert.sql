-- audit_insert: insert one audit entry.
INSERT INTO {schema}onceward_audit (
    at, verb, who, why, detail, id, scope, key, state_before, state_after, token_before, token_after, count
) VALUES (
    $1::bigint, $2::text, $3::text, $4::text, $5::text, $6::bytea, $7::text, $8::text, $9::text, $10::text,
    $11::bigint, $12::bigint, $13::bigint
) RETURNING number
