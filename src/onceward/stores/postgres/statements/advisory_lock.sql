-- advisory_lock: try to take the lock of a key until the transaction ends; return the transaction id.
SELECT pg_try_advisory_xact_lock($1::bigint) AS mine, pg_current_xact_id()::text AS number
