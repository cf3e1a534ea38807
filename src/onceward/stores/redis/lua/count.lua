-- What processes have counted. KEYS: ids, then the hour of each sheet. ARGV: time, for how many seconds hours are kept,
-- then for each sheet its process and its bytes: number (8 bytes), then the counts (JSON).
-- An hour is a hash, from processes to their sheets; it expires by itself. A sheet that was overtaken changes nothing.
-- The answer: the time.

for i = 2, #KEYS do
  local process, sheet = ARGV[2 * i - 1], ARGV[2 * i]
  local before = redis.call('HGET', KEYS[i], process)
  if not before or number(sub(before, 1, 8)) < number(sub(sheet, 1, 8)) then
    redis.call('HSET', KEYS[i], process, sheet)
    if is_real then redis.call('EXPIRE', KEYS[i], ARGV[2]) end
  end
end
return bytes(now)
