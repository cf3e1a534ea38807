-- Reads the records of one step of the server's SCAN. Writes nothing.
--   KEYS: audit. ARGV: time, the pattern of the keys, the cursor of SCAN, how many keys to visit, how many records to return,
--   after how many bytes to stop, `full` or `light` (without results), states as digits, `1` and the scope or `0`, the same
--   for the key, updated before (0: any), then the ids that an earlier call returned for this cursor.
-- The reply: the time, the next cursor (`0`: the end; nil: this step has more records), then each id and its record.

local pattern, cursor, max_keys, max_records, max_bytes = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local light, states, before = ARGV[7] == 'light', ARGV[8], tonumber(ARGV[13])
local scoped, scope, keyed, key_text = ARGV[9] == '1', ARGV[10], ARGV[11] == '1', ARGV[12]

local returned = {}
for i = 14, #ARGV do returned[ARGV[i]] = true end

local function is_wanted(r)
  if states ~= '' and not string.find(states, string.format('%.0f', r[STATE]), 1, true) then return false end
  if before > 0 and r[UPDATED_AT] >= before then return false end
  return not (scoped and r[SCOPE] ~= scope or keyed and r[KEY] ~= key_text)
end

local PREFIX_SIZE = 4096  -- bytes: enough for nearly every record without its result

-- Returns the fields of a record without its result, which may be large: its bytes if this version cannot read them, nil if
-- the key holds no string.
local function read_without_result(key)
  local s = redis.pcall('GETRANGE', key, 0, PREFIX_SIZE - 1)
  if type(s) ~= 'string' or s == '' then return nil end
  local r = readable(s)
  if r == s and #s == PREFIX_SIZE then r = readable(redis.call('GET', key)) end
  return r
end

local step = redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', max_keys)
local answer, size = {now, step[1]}, 0
for _, key in ipairs(step[2]) do
  local id = id_of(key)
  local r = not returned[id] and read_without_result(key)
  if r and (type(r) == 'string' or is_wanted(r)) then  -- the caller reports the ids of records that it cannot read
    if (#answer - 2) / 2 == max_records or size >= max_bytes then
      answer[2] = false
      break
    end
    if not light then
      local s = redis.call('GET', key)
      r, size = readable(s), size + #s
    elseif type(r) == 'table' then
      r[RESULT] = r[RESULT] and ''
    end
    answer[#answer + 1] = id
    answer[#answer + 1] = r
  end
end
return answer
