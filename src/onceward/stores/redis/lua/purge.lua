-- Delete records that answer for nothing any more, and ids whose records have expired.
--   KEYS: ids, audit. ARGV: time, signature, the cursor to go on behind, how many ids to look at, how many may go, the number
--   of the audit entry that counts them (0: none yet).
-- The answer: how many went, the number of the entry, and the cursor to go on behind (empty: that was the end).

local SIGNED, after, looks, most = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local number_of_entry = tonumber(ARGV[6])

local function is_purgeable(r)
  if r.min_reader > READER or r.token >= now - CLOCK_MARGIN then return false end
  local at = ending(r)
  return at ~= nil and now >= at
end

local ids, cursors = ids_after(after, looks)
local cursor, going, stale = #ids < looks and '' or cursors[#ids], {}, {}
for i = 1, #ids do
  local key = BASE .. 'r:' .. ids[i]
  local s = redis.call('GETRANGE', key, 0, TEXTS - 1)
  if s == '' then
    stale[#stale + 1] = ids[i]
  elseif #s == TEXTS and is_purgeable(read_head(s)) then
    if #going == most then
      cursor = cursors[i - 1] or after
      break
    end
    going[#going + 1] = ids[i]
  end
end

if #going > 0 and SIGNED ~= '' then
  local entry = entry_of(SIGNED, #going, nil, nil, '')
  if number_of_entry == 0 then
    number_of_entry = sign(entry)
  else
    local name = string.format('%.0f', number_of_entry)
    local old = redis.call('HGET', AUDIT, name)
    local count = old and unpack_('<I4', old, 25) or 0
    redis.call('HSET', AUDIT, name, entry_of(SIGNED, count + #going, nil, nil, ''))
  end
end
for i = 1, #going do
  redis.call('DEL', BASE .. 'r:' .. going[i])
  redis.call('ZREM', KEYS[1], going[i])
end
for i = 1, #stale do redis.call('ZREM', KEYS[1], stale[i]) end
return pack('<I4I4I2', #going, number_of_entry, #cursor) .. cursor
