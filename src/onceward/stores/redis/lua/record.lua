-- The layout of a record, and the keys of a store. Every script except fast.lua begins with this file.
--
-- All keys of a store have the same hash tag, so that they live in one slot of a cluster:
--   {onceward}:r:<id>   a record, under the 32 bytes of its id
--   {onceward}:ids      sorted set of ids, see index.lua. For scans, counts and purge. An id may outlive its record, which
--                       expires by itself; every record has its id here
--   {onceward}:audit    hash: `first` and `last` are numbers, and each number in between is the field of an entry
--   {onceward}:w:<id>   channel, notified when the record is settled
--   {onceward}:n:<id>   the latest state of an entity, see latest.lua; the tombstone of a deleted one expires by itself
--   {onceward}:m:<mark> a processed message or event, see latest.lua; expires by itself
--   {onceward}:c:<hour> the counters of that hour by process, see save_counts.lua; expires by itself
--
-- A record is a head of fixed size, then texts whose lengths are in the head (little-endian, times in µs):
--   min_reader state after_crash flags   4 x 1 byte
--   token cycle                          2 x 8 bytes
--   attempt max_attempts                 2 x 4 bytes
--   created_at claimed_at updated_at renewed_at lease_until retry_at   6 x 8 bytes
--   valid_until slide                    2 x 8 bytes, handled as bytes: they may exceed 2^53, where Lua rounds
--   lengths of nonce fingerprint digest more                                4 x 2 bytes
--   lengths of scope key owner arguments note error_type error result       8 x 4 bytes
--   the texts themselves, in that order
-- `more` is for fields of later versions: versions that do not know them preserve them. `result` comes last, so that
-- everything else can be read without it. Flags say which times are set: a record without a lease is owned indefinitely.

local FREE, PENDING, COMPLETED, FAILED, PARKED = 0, 1, 2, 3, 4
local STATES = {[0] = 'FREE', 'PENDING', 'COMPLETED', 'FAILED', 'PARKED'}
local RERUN, VERIFY, PARK = 0, 1, 2
local ASK_FIRST, RELEASED, STORED, FINAL, LEASED, RETRIES, ENDS, RESULT = 1, 2, 4, 8, 16, 32, 64, 128

local HEAD, HEAD_SIZE = '<BBBBI8I8I4I4I8I8I8I8I8I8c8c8', 92
local LENGTHS, LENGTHS_SIZE = '<I2I2I2I2I4I4I4I4I4I4I4I4', 40
local PREAMBLE_SIZE = HEAD_SIZE + LENGTHS_SIZE
local ZERO = string.rep('\0', 8)

local band = bit.band
local pack, unpack_, sub = struct.pack, struct.unpack, string.sub

local function number(bytes)
  return (unpack_('<I8', bytes))
end

local function bytes(value)
  return pack('<I8', value)
end

-- Reads the texts of a record or a request into fields of the table. `at` is the offset of their lengths.
local function read_texts(r, s, at)
  local nonce, fingerprint, digest, more, scope, key, owner, arguments, note, error_type, error_text, result =
    unpack_(LENGTHS, s, at)
  local from = at + LENGTHS_SIZE
  local function text(length)
    local begin = from
    from = from + length
    return length == 0 and '' or sub(s, begin, from - 1)
  end
  r.nonce, r.fingerprint, r.digest, r.more = text(nonce), text(fingerprint), text(digest), text(more)
  r.scope, r.key, r.owner, r.arguments = text(scope), text(key), text(owner), text(arguments)
  r.note, r.error_type, r.error = text(note), text(error_type), text(error_text)
  r.result = text(result)
end

-- Reads the fields that decisions need, without the texts except the nonce.
local function read_head(s)
  local min_reader, state, after_crash, flags, token, cycle, attempt, max_attempts, created_at, claimed_at, updated_at,
    renewed_at, lease_until, retry_at, valid_until, slide = unpack_(HEAD, s)
  return {
    min_reader = min_reader, state = state, after_crash = after_crash, token = token, cycle = cycle,
    attempt = attempt, max_attempts = max_attempts, created_at = created_at, claimed_at = claimed_at,
    updated_at = updated_at, renewed_at = renewed_at, slide = slide,
    lease_until = band(flags, LEASED) ~= 0 and lease_until or nil,
    retry_at = band(flags, RETRIES) ~= 0 and retry_at or nil,
    valid_until = band(flags, ENDS) ~= 0 and valid_until or nil,
    ask_first = band(flags, ASK_FIRST) ~= 0, released = band(flags, RELEASED) ~= 0,
    stored = band(flags, STORED) ~= 0, final = band(flags, FINAL) ~= 0, has_result = band(flags, RESULT) ~= 0,
    nonce = sub(s, PREAMBLE_SIZE + 1, PREAMBLE_SIZE + unpack_('<I2', s, HEAD_SIZE + 1)),
  }
end

local function flags_of(r)
  return (r.ask_first and ASK_FIRST or 0) + (r.released and RELEASED or 0) + (r.stored and STORED or 0)
    + (r.final and FINAL or 0) + (r.lease_until and LEASED or 0) + (r.retry_at and RETRIES or 0)
    + (r.valid_until and ENDS or 0) + (r.has_result and RESULT or 0)
end

local function write_head(r)
  return pack(HEAD, r.min_reader, r.state, r.after_crash, flags_of(r), r.token, r.cycle, r.attempt, r.max_attempts,
    r.created_at, r.claimed_at, r.updated_at, r.renewed_at, r.lease_until or 0, r.retry_at or 0,
    r.valid_until or ZERO, r.slide)
end

local function write_texts(r)
  return pack(LENGTHS, #r.nonce, #r.fingerprint, #r.digest, #r.more, #r.scope, #r.key, #r.owner, #r.arguments, #r.note,
      #r.error_type, #r.error, #r.result)
    .. r.nonce .. r.fingerprint .. r.digest .. r.more .. r.scope .. r.key .. r.owner .. r.arguments .. r.note
    .. r.error_type .. r.error .. r.result
end

-- A limit of 0 means unlimited attempts.
local function attempts_used_up(attempt, max_attempts)
  return max_attempts > 0 and attempt >= max_attempts
end

local function is_over(r, now)
  return r.valid_until ~= nil and now >= number(r.valid_until)
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
  return number(r.valid_until)
end

-- The clock is the server's. Only tests pass another time, and then nothing expires by the server's clock.
local now = unpack_('<I8', ARGV[1])
local is_real = now == 0
if is_real then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local BASE = sub(KEYS[1], 1, -4)

local function id_of(key)
  return sub(key, #BASE + 3)
end
