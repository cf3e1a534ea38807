-- Some of the records, in the order of the index. Writes nothing.
--   KEYS: ids. ARGV: time, the cursor to go on behind, how many ids to look at, how many records are wanted, how many bytes
--   are enough, `full` or `light` (without results), states as digits, `1` and the scope or `0`, the same for the key,
--   updated before (0: any).
-- The answer: the time, the cursor to go on behind (empty: that was the end), then for each record its id and its bytes.
-- A record that has expired is stepped over; its id goes with the next purge.

local after, looks, most, enough = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local light, states, before = ARGV[6] == 'light', ARGV[7], tonumber(ARGV[12])
local scoped, scope, keyed, key_text = ARGV[8] == '1', ARGV[9], ARGV[10] == '1', ARGV[11]

local GLIMPSE = 4096  -- bytes: nearly every record without its result

local function head_of(key)
  local s = redis.call('GETRANGE', key, 0, GLIMPSE - 1)
  if #s < TEXTS then return nil end
  local result = unpack_('<I4', s, TEXTS - 3)
  if #s < GLIMPSE then return sub(s, 1, #s - result) end
  local whole = redis.call('STRLEN', key)
  if whole - result <= GLIMPSE then return sub(s, 1, whole - result) end
  return redis.call('GETRANGE', key, 0, whole - result - 1)
end

local function is_wanted(s)
  local r = read_head(s)
  if states ~= '' and not string.find(states, string.format('%.0f', r.state), 1, true) then return false end
  if before > 0 and r.updated_at >= before then return false end
  if scoped or keyed then
    read_texts(r, s, HEAD_SIZE + 1)
    if scoped and r.scope ~= scope or keyed and r.key ~= key_text then return false end
  end
  return true
end

local ids, cursors = ids_after(after, looks)
local found, size, cursor = {}, 0, #ids < looks and '' or cursors[#ids]
for i = 1, #ids do
  local key = BASE .. 'r:' .. ids[i]
  local s = head_of(key)
  if s and is_wanted(s) then
    if #found == most or size >= enough then
      cursor = cursors[i - 1]
      break
    end
    if not light then s = redis.call('GET', key) end
    found[#found + 1] = pack('<I2I4', #ids[i], #s) .. ids[i] .. s
    size = size + #s
  end
end
return bytes(now) .. pack('<I2', #cursor) .. cursor .. table.concat(found)
