-- Reads entries of the audit trail, newest first. KEYS: audit. ARGV: time, the number to continue before (0: begin
-- with the newest), how many to visit. Writes nothing. The reply: the time, the number to continue before (0: the end),
-- then the entries.

local first = tonumber(redis.call('HGET', AUDIT, 'first') or '1')
local from = tonumber(ARGV[2])
if from == 0 then from = tonumber(redis.call('HGET', AUDIT, 'last') or '0') + 1 end
local to = math.max(first, from - tonumber(ARGV[3]))
local answer = {now, to > first and to or 0}
for number_of_entry = from - 1, to, -1 do
  local entry = redis.call('HGET', AUDIT, string.format('%.0f', number_of_entry))
  if entry then answer[#answer + 1] = entry end
end
return answer
