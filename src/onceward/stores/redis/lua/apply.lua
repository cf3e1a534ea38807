-- Applies claims, renewals, settlements and forget requests: one request per record, all in one call. The script has the
-- functions of audit.lua only if the call is signed.
--   KEYS: audit, then one record each. ARGV: time, signature, the requests.
-- All requests are one argument, because clients need far less time to send one than several per request. Each is the
-- length of its verb (1 byte), its verb, the size of its content (4 bytes), and its content: see claim.lua and change.lua.
-- Lua does not roll back. So each item runs in pcall, and everything that can fail precedes its single SET.
--
-- The reply: the time, then for each item its verdict and one of
--   a string   the record, as it is stored
--   a number   the token of a new claim, granted exactly as requested
--   nil        there is no record, or the request completed the record, and its owner knows the fields
-- The verdict ERROR means that nothing was changed. The string is the text of the error.

local change  -- defined when a request needs it

local function apply(key, verb, at, next_at)
  local s = redis.call('GET', key)
  if not s then
    if verb == 'claim' then return acquire_new_cycle(key, at) end
    if verb ~= 'forget' then return 'LOST', false end
    redis.call('DEL', sub(AUDIT, 1, -6) .. 'h:' .. sub(key, #AUDIT - 2))  -- a history may expire later than its record
    return 'OK', false
  end
  if byte(s) > READER then return 'SKEW', s end
  if verb == 'claim' and is_replay(s, at) then return 'REPLAY', s end
  change = change or define_change()
  return change(key, s, verb, at, next_at)
end

local answer, next_at = {now}, 1
for i = 2, #KEYS do
  local verb, size, at = unpack_('<I1c0I4', REQUESTS, next_at)
  next_at = at + size
  local ok, verdict, payload = pcall(apply, KEYS[i], verb, at, next_at)
  if not ok then
    verdict, payload = 'ERROR', type(verdict) == 'table' and verdict.err or tostring(verdict)
  end
  answer[#answer + 1] = verdict
  answer[#answer + 1] = payload
end
return answer
