-- Deletes entries of the audit trail that are too old. KEYS: audit. ARGV: time, how many to delete at most.
-- The reply: 1 if there may be more.

local first = tonumber(redis.call('HGET', AUDIT, 'first') or '1')
local last = tonumber(redis.call('HGET', AUDIT, 'last') or '0')
local expired = {}
while first <= last and #expired < tonumber(ARGV[2]) do
  local name = string.format('%.0f', first)
  local entry = redis.call('HGET', AUDIT, name)
  if entry and #entry >= 8 and number(sub(entry, 1, 8)) > now - KEEP_AUDIT then break end
  expired[#expired + 1] = name
  first = first + 1
end
if #expired == 0 then return 0 end
redis.call('HDEL', AUDIT, unpack(expired))
redis.call('HSET', AUDIT, 'first', string.format('%.0f', first))
return #expired == tonumber(ARGV[2]) and 1 or 0
