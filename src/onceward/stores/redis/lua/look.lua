-- Records by their ids. KEYS: ids, then one record each. ARGV: time. Writes nothing.
-- The answer: the time, then for each a length and its bytes; 0 if there is no such record.

local answer = {bytes(now)}
for i = 2, #KEYS do
  local s = redis.call('GET', KEYS[i]) or ''
  answer[#answer + 1] = pack('<I4', #s)
  answer[#answer + 1] = s
end
return table.concat(answer)
