-- Deletes records that are no longer needed, and ids whose records have expired.
--   KEYS: ids, audit. ARGV: time, signature, the cursor to continue after, how many ids to visit, how many records to
--   delete, the number of the audit entry that counts them (0: none yet).
-- The reply: how many were deleted, the number of the entry, and the cursor to continue after (empty: the end).

local SIGNED, after, max_ids, max_records = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local number_of_entry = tonumber(ARGV[6])

local function is_purgeable(r)
  if r.min_reader > READER or r.token >= now - CLOCK_MARGIN then return false end
  local at = deletable_at(r)
  return at ~= nil and now >= at
end

local ids, cursors = ids_after(after, max_ids)
local cursor, purged, stale = #ids < max_ids and '' or cursors[#ids], {}, {}
for i = 1, #ids do
  local key = BASE .. 'r:' .. ids[i]
  local s = redis.call('GETRANGE', key, 0, PREAMBLE_SIZE - 1)
  if s == '' then
    stale[#stale + 1] = ids[i]
  elseif #s == PREAMBLE_SIZE and is_purgeable(read_head(s)) then
    if #purged == max_records then
      cursor = cursors[i - 1] or after
      break
    end
    purged[#purged + 1] = ids[i]
  end
end

if #purged > 0 and SIGNED ~= '' then
  local entry = entry_of(SIGNED, #purged, nil, nil, '')
  if number_of_entry == 0 then
    number_of_entry = sign(entry)
  else
    local name = string.format('%.0f', number_of_entry)
    local old = redis.call('HGET', AUDIT, name)
    local count = old and unpack_('<I4', old, 25) or 0
    redis.call('HSET', AUDIT, name, entry_of(SIGNED, count + #purged, nil, nil, ''))
  end
end
for i = 1, #purged do
  redis.call('DEL', BASE .. 'r:' .. purged[i])
  redis.call('ZREM', KEYS[1], purged[i])
end
for i = 1, #stale do redis.call('ZREM', KEYS[1], stale[i]) end
return pack('<I4I4I2', #purged, number_of_entry, #cursor) .. cursor
