-- What processes have counted in these hours. KEYS: ids, then the hours. ARGV: time. Writes nothing.
-- The answer: the time, then for each sheet the place of its hour among the keys (2 bytes), the lengths of its process
-- and of its bytes (4 bytes each), and these two.

local answer = {bytes(now)}
for i = 2, #KEYS do
  local sheets = redis.call('HGETALL', KEYS[i])
  for n = 1, #sheets, 2 do
    answer[#answer + 1] = pack('<I2I4I4', i - 2, #sheets[n], #sheets[n + 1]) .. sheets[n] .. sheets[n + 1]
  end
end
return table.concat(answer)
