-- audit_raise_count: raise the count of an entry; a purge in several transactions is one operation.
UPDATE {schema}onceward_audit SET count = count + $2::bigint, at = $3::bigint WHERE number = $1::bigint
