-- Reads the records of one step of the server's SCAN. Writes nothing.
--   KEYS: audit. ARGV: time, the pattern of the keys, the cursor of SCAN, how many keys to visit, how many records to return,
--   after how many bytes to stop, `full` or `light` (without results), states as digits, `1` and the scope or `0`, the same
--   for the key and for the start of the key, updated before (0: any), then the ids that an earlier call returned for this cursor.
-- The reply: the time, the next cursor (`0`: the end; nil: this step has more records), then each id and its record.

local pattern, cursor, max_keys, max_records, max_bytes = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local light, states, before = ARGV[7] == 'light', ARGV[8], tonumber(ARGV[15])
local scoped, scope, keyed, key_text = ARGV[9] == '1', ARGV[10], ARGV[11] == '1', ARGV[12]
local begun, start = ARGV[13] == '1', ARGV[14]

local returned = {}
for i = 16, #ARGV do returned[ARGV[i]] = true end

local function is_wanted(r)
  if states ~= '' and not string.find(states, string.format('%.0f', r[STATE]), 1, true) then return false end
  if begun and sub(r[KEY], 1, #start) ~= start then return false end
  if before > 0 and r[UPDATED_AT] >= before then return false end
  return not (scoped and r[SCOPE] ~= scope or keyed and r[KEY] ~= key_text)
end

local step = redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', max_keys)
local answer, size = {now, step[1]}, 0
for _, key in ipairs(step[2]) do
  local id = id_of(key)
  local s, r
  if not returned[id] then s, r = read_without_result(key) end
  if s and (not r or is_wanted(r)) then  -- the caller reports the ids of records that it cannot read
    if (#answer - 2) / 2 == max_records or size >= max_bytes then
      answer[2] = false
      break
    end
    if not light then
      s = redis.call('GET', key)
      size = size + #s
    end
    answer[#answer + 1] = id
    answer[#answer + 1] = s
  end
end
return answer
