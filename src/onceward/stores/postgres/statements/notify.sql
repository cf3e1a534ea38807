-- notify: tells those who wait for these keys, wherever they are.
SELECT count(pg_notify($1::text, encode(id, 'hex'))) FROM unnest($2::bytea[]) AS told (id)
