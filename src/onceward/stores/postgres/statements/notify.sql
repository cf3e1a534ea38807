-- notify: wake the callers that wait for these keys, in any process.
SELECT count(pg_notify($1::text, encode(id, 'hex'))) FROM unnest($2::bytea[]) AS told (id)
