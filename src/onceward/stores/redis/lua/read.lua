-- Reads records by their ids. KEYS: ids, then one record each. ARGV: time. Writes nothing.
-- The reply: the time, then for each record its length and its bytes; length 0 if it does not exist.

local answer = {bytes(now)}
for i = 2, #KEYS do
  local s = redis.call('GET', KEYS[i]) or ''
  answer[#answer + 1] = pack('<I4', #s)
  answer[#answer + 1] = s
end
return table.concat(answer)
