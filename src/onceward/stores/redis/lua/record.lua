-- The layout of a record, and the keys of a store. Every script begins with this file.
--
-- All keys of a store have the same hash tag, so that they live in one slot of a cluster:
--   {onceward}:r:<id>   a record, under the 32 bytes of its id; expires by itself when it is no longer needed
--   {onceward}:audit    hash: `first` and `last` are numbers, and each number in between is the field of an entry
--   {onceward}:w:<id>   channel, notified when the record is settled
--   {onceward}:n:<id>   the latest state of an entity, see latest.lua; the tombstone of a deleted one expires by itself
--   {onceward}:m:<mark> a processed message or event, see latest.lua; expires by itself
--   {onceward}:c:<hour> the counters of that hour by process, see save_counts.lua; expires by itself
-- There is no index: it would take a quarter of the memory of a record. Scans visit the keys of the database, see scan.lua.
--
-- A record is one string:
--   min_reader                     1 byte, and in this place in every later version, too
--   token                          8 bytes, little-endian; the same
--   the length of the numbers      1 byte
--   numbers                        a MessagePack array, which stores a small number in one byte
--   texts                          one after the other; their lengths are among the numbers
-- The numbers are, in this order:
--   state after_crash flags cycle attempt max_attempts
--   created_at claimed_at updated_at renewed_at lease_until retry_at valid_until slide
--   the lengths of: nonce fingerprint digest more scope key owner arguments note error_type error result
-- Times are in µs. They and the cycle are stored as their distance from the token, which is usually small. Flags say
-- which times are set: a record without a lease is owned indefinitely. valid_until and slide may exceed 2^53, where Lua
-- rounds. Then they are decimal texts, not relative, and compared as rounded numbers.
-- `more` is for fields of later versions: versions that do not know them preserve them. `result` comes last, so that
-- everything else can be read without it.

local FREE, PENDING, COMPLETED, FAILED, PARKED = 0, 1, 2, 3, 4
local RERUN, VERIFY, PARK = 0, 1, 2
local ASK_FIRST, RELEASED, STORED, FINAL, LEASED, RETRIES, ENDS, RESULT = 1, 2, 4, 8, 16, 32, 64, 128

local HEAD, HEAD_SIZE = '<BI8B', 10
local FIRST_LENGTH, RESULT_LENGTH = 15, 26  -- places of lengths among the numbers of a record
local MAX_NUMBERS_SIZE = HEAD_SIZE + 255  -- bytes: the beginning of a record that always contains its numbers

local band = bit.band
local pack, unpack_, sub, byte = struct.pack, struct.unpack, string.sub, string.byte

local function number(bytes)
  return (unpack_('<I8', bytes))
end

local function bytes(value)
  return pack('<I8', value)
end

-- Reads the texts of a record or a request into fields of the table. The first is at offset `from` of `s`, and `at` is the
-- place of its length among the numbers.
local function read_texts(r, s, from, numbers, at)
  local function text(place)
    local length = numbers[at + place]
    if length == 0 then return '' end
    local begin = from
    from = from + length
    return sub(s, begin, from - 1)
  end
  r.nonce, r.fingerprint, r.digest, r.more = text(0), text(1), text(2), text(3)
  r.scope, r.key, r.owner, r.arguments = text(4), text(5), text(6), text(7)
  r.note, r.error_type, r.error, r.result = text(8), text(9), text(10), text(11)
  return r
end

-- Reads a record. If its last texts are missing, because only its beginning was read, they are empty.
local function read_record(s)
  local min_reader, token, size = unpack_(HEAD, s)
  local n = cmsgpack.unpack(sub(s, HEAD_SIZE + 1, HEAD_SIZE + size))
  local flags, valid_until = n[3], n[13]
  if type(valid_until) == 'number' then valid_until = valid_until + token end
  return read_texts({
    min_reader = min_reader, token = token, state = n[1], after_crash = n[2], cycle = n[4] + token,
    attempt = n[5], max_attempts = n[6], created_at = n[7] + token, claimed_at = n[8] + token,
    updated_at = n[9] + token, renewed_at = n[10] + token, slide = n[14],
    lease_until = band(flags, LEASED) ~= 0 and n[11] + token or nil,
    retry_at = band(flags, RETRIES) ~= 0 and n[12] + token or nil,
    valid_until = band(flags, ENDS) ~= 0 and valid_until or nil,
    ask_first = band(flags, ASK_FIRST) ~= 0, released = band(flags, RELEASED) ~= 0,
    stored = band(flags, STORED) ~= 0, final = band(flags, FINAL) ~= 0, has_result = band(flags, RESULT) ~= 0,
  }, s, HEAD_SIZE + size + 1, n, FIRST_LENGTH)
end

-- Returns how many bytes of a record precede its result.
local function size_without_result(s)
  local _, _, size = unpack_(HEAD, s)
  local n = cmsgpack.unpack(sub(s, HEAD_SIZE + 1, HEAD_SIZE + size))
  local total = HEAD_SIZE + size
  for place = FIRST_LENGTH, RESULT_LENGTH - 1 do total = total + n[place] end
  return total
end

local function flags_of(r)
  return (r.ask_first and ASK_FIRST or 0) + (r.released and RELEASED or 0) + (r.stored and STORED or 0)
    + (r.final and FINAL or 0) + (r.lease_until and LEASED or 0) + (r.retry_at and RETRIES or 0)
    + (r.valid_until and ENDS or 0) + (r.has_result and RESULT or 0)
end

local function write_record(r)
  local token, valid_until = r.token, r.valid_until or 0
  if r.valid_until and type(valid_until) == 'number' then valid_until = valid_until - token end
  local numbers = cmsgpack.pack({
    r.state, r.after_crash, flags_of(r), r.cycle - token, r.attempt, r.max_attempts,
    r.created_at - token, r.claimed_at - token, r.updated_at - token, r.renewed_at - token,
    r.lease_until and r.lease_until - token or 0, r.retry_at and r.retry_at - token or 0, valid_until, r.slide,
    #r.nonce, #r.fingerprint, #r.digest, #r.more, #r.scope, #r.key, #r.owner, #r.arguments, #r.note, #r.error_type,
    #r.error, #r.result,
  })
  return pack(HEAD, r.min_reader, token, #numbers) .. numbers .. r.nonce .. r.fingerprint .. r.digest .. r.more
    .. r.scope .. r.key .. r.owner .. r.arguments .. r.note .. r.error_type .. r.error .. r.result
end

-- A limit of 0 means unlimited attempts.
local function attempts_used_up(attempt, max_attempts)
  return max_attempts > 0 and attempt >= max_attempts
end

local function is_over(r, now)
  return r.valid_until ~= nil and now >= tonumber(r.valid_until)
end

-- Returns the time from which the record may be deleted, or nil if that is not known yet.
local function deletable_at(r)
  if r.state == FREE then return 0 end
  if r.state == PENDING then
    if r.after_crash ~= RERUN or r.released or not r.lease_until or attempts_used_up(r.attempt, r.max_attempts) then
      return nil
    end
    return r.lease_until + KEEP_UNFINISHED
  end
  if r.state == PARKED or not r.valid_until then return nil end
  return tonumber(r.valid_until)
end

-- The clock is the server's. Only tests pass another time, and then nothing expires by the server's clock.
local now = unpack_('<I8', ARGV[1])
local is_real = now == 0
if is_real then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- The first key of every script on records is the audit trail. It has the prefix of all keys.
local AUDIT = KEYS[1]
local BASE = sub(AUDIT, 1, -6)

local function id_of(key)
  return sub(key, #BASE + 3)
end
