-- Entries of the audit trail, the newest first. KEYS: ids, audit. ARGV: time, the number to go on before (0: from the
-- last on), how many to look at. Writes nothing. The answer: the time, the number to go on before (0: that was the end),
-- then for each a length and its bytes.

local first = tonumber(redis.call('HGET', AUDIT, 'first') or '1')
local from = tonumber(ARGV[2])
if from == 0 then from = tonumber(redis.call('HGET', AUDIT, 'last') or '0') + 1 end
local to = math.max(first, from - tonumber(ARGV[3]))
local found = {}
for number_of_entry = from - 1, to, -1 do
  local entry = redis.call('HGET', AUDIT, string.format('%.0f', number_of_entry))
  if entry then found[#found + 1] = pack('<I4', #entry) .. entry end
end
return bytes(now) .. pack('<I8', to > first and to or 0) .. table.concat(found)
