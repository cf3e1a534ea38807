-- Reads records in the order of the index. Writes nothing.
--   KEYS: ids. ARGV: time, the cursor to continue after, how many ids to visit, how many records to return, after how
--   many bytes to stop, `full` or `light` (without results), states as digits, `1` and the scope or `0`, the same for the key,
--   updated before (0: any).
-- The reply: the time, the cursor to continue after (empty: the end), then for each record its id and its bytes.
-- Expired records are skipped; the next purge deletes their ids.

local after, max_ids, max_records, max_bytes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local light, states, before = ARGV[6] == 'light', ARGV[7], tonumber(ARGV[12])
local scoped, scope, keyed, key_text = ARGV[8] == '1', ARGV[9], ARGV[10] == '1', ARGV[11]

local PREFIX_SIZE = 4096  -- bytes: enough for nearly every record without its result

local function head_of(key)
  local s = redis.call('GETRANGE', key, 0, PREFIX_SIZE - 1)
  if #s < PREAMBLE_SIZE then return nil end
  local result = unpack_('<I4', s, PREAMBLE_SIZE - 3)
  if #s < PREFIX_SIZE then return sub(s, 1, #s - result) end
  local whole = redis.call('STRLEN', key)
  if whole - result <= PREFIX_SIZE then return sub(s, 1, whole - result) end
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

local ids, cursors = ids_after(after, max_ids)
local found, size, cursor = {}, 0, #ids < max_ids and '' or cursors[#ids]
for i = 1, #ids do
  local key = BASE .. 'r:' .. ids[i]
  local s = head_of(key)
  if s and is_wanted(s) then
    if #found == max_records or size >= max_bytes then
      cursor = cursors[i - 1]
      break
    end
    if not light then s = redis.call('GET', key) end
    found[#found + 1] = pack('<I2I4', #ids[i], #s) .. ids[i] .. s
    size = size + #s
  end
end
return bytes(now) .. pack('<I2', #cursor) .. cursor .. table.concat(found)
