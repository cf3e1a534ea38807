-- Reads entries of the audit trail, newest first. KEYS: ids, audit. ARGV: time, the number to continue before (0: begin
-- with the newest), how many to visit. Writes nothing. The reply: the time, the number to continue before (0: the end),
-- then for each entry its length and its bytes.

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
