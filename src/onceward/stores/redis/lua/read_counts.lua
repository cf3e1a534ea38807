-- Reads the counters of these hours. KEYS: audit, then the hours. ARGV: time. Writes nothing.
-- The reply: the time, then for each row the index of its hour among the keys (2 bytes), the lengths of its process and
-- of its bytes (4 bytes each), then the process and the bytes.

local answer = {bytes(now)}
for i = 2, #KEYS do
  local rows = redis.call('HGETALL', KEYS[i])
  for n = 1, #rows, 2 do
    answer[#answer + 1] = pack('<I2I4I4', i - 2, #rows[n], #rows[n + 1]) .. rows[n] .. rows[n + 1]
  end
end
return table.concat(answer)
