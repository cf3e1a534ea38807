-- Deletes the given records that are FREE, and their histories. KEYS: audit, then one key per record. ARGV: time.
-- The reply: how many were deleted.

local deleted = 0
for i = 2, #KEYS do
  local s = redis.call('GET', KEYS[i])
  if not s then
    redis.call('DEL', history_of(KEYS[i]))
  elseif byte(s) <= READER then
    local is_readable, r = pcall(read_record, s)
    if is_readable and r[STATE] == FREE then
      deleted = deleted + redis.call('DEL', KEYS[i])
      redis.call('DEL', history_of(KEYS[i]))
    end
  end
end
return deleted
