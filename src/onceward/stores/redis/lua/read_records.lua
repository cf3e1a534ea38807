-- Reads records. KEYS: audit, then one record each. ARGV: time. Writes nothing.
-- The reply: the time, then for each record its fields, its bytes if this version cannot read them, or nil if there is none.

local answer = {now}
for i = 2, #KEYS do
  local s = redis.call('GET', KEYS[i])
  answer[i] = s and readable(s)
end
return answer
