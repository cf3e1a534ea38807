-- count_more: a purge that goes on in a second transaction is still one deed.
UPDATE {schema}onceward_audit SET count = count + $2::bigint, at = $3::bigint WHERE number = $1::bigint
