-- The history of a record: its key, and how long it is kept.

local function history_of(key)
  return BASE .. 'h:' .. id_of(key)
end

-- Lets the history expire together with its record. The record of unfinished work may have no expiry yet, and completing
-- it does not touch its history. So this history is kept for a limited time after its last event.
local function expire_with_record(history, key, r)
  if not is_real then return end
  local left = redis.call('PTTL', key)
  if left >= 0 then
    redis.call('PEXPIRE', history, string.format('%.0f', left))
  elseif r[STATE] == PENDING then
    redis.call('PEXPIRE', history, string.format('%.0f', KEEP_UNFINISHED / 1000))
  else
    redis.call('PERSIST', history)
  end
end
