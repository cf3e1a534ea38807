-- advise: the lock of a key for this transaction, if nobody has it; and the transaction's own number.
SELECT pg_try_advisory_xact_lock($1::bigint) AS mine, pg_current_xact_id()::text AS number
