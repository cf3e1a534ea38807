-- Forget entries of the audit trail that are too old. KEYS: ids, audit. ARGV: time, how many may go.
-- The answer: 1 if there may be more.

local first = tonumber(redis.call('HGET', AUDIT, 'first') or '1')
local last = tonumber(redis.call('HGET', AUDIT, 'last') or '0')
local gone = {}
while first <= last and #gone < tonumber(ARGV[2]) do
  local name = string.format('%.0f', first)
  local entry = redis.call('HGET', AUDIT, name)
  if entry and number(sub(entry, 1, 8)) > now - KEEP_AUDIT then break end
  gone[#gone + 1] = name
  first = first + 1
end
if #gone == 0 then return 0 end
redis.call('HDEL', AUDIT, unpack(gone))
redis.call('HSET', AUDIT, 'first', string.format('%.0f', first))
return #gone == tonumber(ARGV[2]) and 1 or 0
