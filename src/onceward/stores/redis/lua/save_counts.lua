-- Saves the counters of processes. KEYS: audit, then the hour of each row. ARGV: time, for how many seconds hours are kept,
-- then for each row its process and its bytes: a sequence number (8 bytes), then the counts (JSON).
-- An hour is a hash from processes to rows, and expires by itself. A row older than the stored one changes nothing.
-- The reply: the time.

for i = 2, #KEYS do
  local process, row = ARGV[2 * i - 1], ARGV[2 * i]
  local before = redis.call('HGET', KEYS[i], process)
  if not before or number(sub(before, 1, 8)) < number(sub(row, 1, 8)) then
    redis.call('HSET', KEYS[i], process, row)
    if is_real then redis.call('EXPIRE', KEYS[i], ARGV[2]) end
  end
end
return bytes(now)
