-- Deletes the records of one step of the server's SCAN that are no longer needed, and their histories.
--   KEYS: audit. ARGV: time, signature, the pattern of the keys, the cursor of SCAN, how many keys to visit, how many records
--   to delete, the number of the audit entry that counts them (0: none yet).
-- The reply: how many were deleted, the number of the entry, the next cursor (`0`: the end).

local SIGNED, pattern, cursor, max_keys, max_records = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local number_of_entry = tonumber(ARGV[7])

local function is_purgeable(r)
  if r[MIN_READER] > READER or r[TOKEN] >= now - CLOCK_MARGIN then return false end
  local at = deletable_at(r)
  return at ~= nil and now >= at
end

local step, purged = redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', max_keys), {}
for _, key in ipairs(step[2]) do
  local s = redis.pcall('GET', key)
  local is_readable, r = pcall(read_record, s)
  if #purged < max_records and is_readable and is_purgeable(r) then purged[#purged + 1] = key end
end

if #purged > 0 and SIGNED ~= '' then
  local entry = entry_of(SIGNED, #purged, NO_STATE, 0, nil, '')
  if number_of_entry == 0 then
    number_of_entry = sign(entry)
  else
    local name = string.format('%.0f', number_of_entry)
    local old = redis.call('HGET', AUDIT, name)
    local count = old and unpack_('<I4', old, 25) or 0
    redis.call('HSET', AUDIT, name, entry_of(SIGNED, count + #purged, NO_STATE, 0, nil, ''))
  end
end
for _, key in ipairs(purged) do redis.call('DEL', key, history_of(key)) end
return {#purged, number_of_entry, step[1]}
