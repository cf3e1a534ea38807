-- Reads the history of a record, see append_history.lua. KEYS: audit, the record, its history. ARGV: time. Writes nothing.
-- The reply: each field and its bytes, in any order. The history of a deleted record may expire later: it is left out.

if redis.call('EXISTS', KEYS[2]) == 0 then return {} end
return redis.call('HGETALL', KEYS[3])
