-- Reads records, states or marks. KEYS: audit, then one key each. ARGV: time. Writes nothing.
-- The reply: the time, then for each key its string, or nil if it does not exist.

local answer = {now}
for i = 2, #KEYS do answer[i] = redis.call('GET', KEYS[i]) end
return answer
