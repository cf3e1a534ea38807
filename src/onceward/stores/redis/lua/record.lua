-- The layout of a record, and the keys of a store. Every script begins with this file.
--
-- All keys of a store have the same hash tag, so that they live in one slot of a cluster:
--   {onceward}:r:<id>   a record, under the 32 bytes of its id; expires by itself when it is no longer needed
--   {onceward}:audit    hash: `first` and `last` are numbers, and each number in between is the field of an entry
--   {onceward}:w:<id>   channel, notified when the record is settled
--   {onceward}:n:<id>   the latest state of an entity, see latest.lua; the tombstone of a deleted one expires by itself
--   {onceward}:m:<mark> a processed message or event, see latest.lua; expires by itself
--   {onceward}:c:<hour> the counters of that hour by process, see save_counts.lua; expires by itself
-- Records have no index, because its entries would take a lot of memory. Scans visit the keys of the database, see scan.lua.
--
-- A record is one string:
--   min_reader   1 byte, and in this place in every later version, too
--   token        8 bytes, little-endian; the same
--   replay_until 8 bytes: a claim with the same payload is a replay that changes nothing until then, see `is_replay`
--   sizes        of nonce, fingerprint and digest (2 bytes each), and of the fields (4 bytes)
--   nonce, fingerprint, digest
--   fields       a MessagePack array, in the order of the constants below, with 0 for what is stored outside of it
--   result       the rest
-- Bytes that are no text are outside of the array, because clients read it, and MessagePack of Redis 7.0 has only text.
-- Times are in µs. They and the cycle are stored as their distance from the token, which takes few bytes. A time that is
-- not set is false: a record without a lease is owned indefinitely. valid_until and slide may exceed 2^53, where Lua
-- rounds. Then they are decimal texts, not relative, and compared as rounded numbers. Later versions may append fields:
-- versions that do not know them preserve them.

local FREE, PENDING, COMPLETED, FAILED, PARKED = 0, 1, 2, 3, 4
local RERUN, VERIFY, PARK = 0, 1, 2

local TOKEN, MIN_READER, STATE, AFTER_CRASH, ATTEMPT, MAX_ATTEMPTS = 1, 2, 3, 4, 5, 6
local ASK_FIRST, RELEASED, STORED, FINAL = 7, 8, 9, 10
local CYCLE, CREATED_AT, CLAIMED_AT, UPDATED_AT, RENEWED_AT, LEASE_UNTIL, RETRY_AT, VALID_UNTIL = 11, 12, 13, 14, 15, 16, 17, 18
local SLIDE, NONCE, FINGERPRINT, DIGEST, SCOPE, KEY, OWNER, ARGUMENTS, NOTE = 19, 20, 21, 22, 23, 24, 25, 26, 27
local ERROR_TYPE, ERROR, RESULT = 28, 29, 30

local HEAD, HEAD_SIZE = '<BI8I8I2I2I2I4', 27
local MAX_EXACT = 9007199254740992  -- 2^53

local pack, unpack_, sub, byte = struct.pack, struct.unpack, string.sub, string.byte
local pack_fields, unpack_fields = cmsgpack.pack, cmsgpack.unpack

-- Adds a number to the cycle and to all times that are set.
local function shift_times(r, by)
  local lease_until, retry_at, valid_until = r[LEASE_UNTIL], r[RETRY_AT], r[VALID_UNTIL]
  r[CYCLE], r[CREATED_AT], r[CLAIMED_AT] = r[CYCLE] + by, r[CREATED_AT] + by, r[CLAIMED_AT] + by
  r[UPDATED_AT], r[RENEWED_AT] = r[UPDATED_AT] + by, r[RENEWED_AT] + by
  if lease_until then r[LEASE_UNTIL] = lease_until + by end
  if retry_at then r[RETRY_AT] = retry_at + by end
  if valid_until and type(valid_until) == 'number' then r[VALID_UNTIL] = valid_until + by end
end

local function read_record(s)
  local min_reader, token, _, nonce_size, fingerprint_size, digest_size, fields_size = unpack_(HEAD, s)
  local fingerprint_at = HEAD_SIZE + nonce_size
  local digest_at = fingerprint_at + fingerprint_size
  local fields_at = digest_at + digest_size
  local result_at = fields_at + fields_size
  local r = unpack_fields(sub(s, fields_at + 1, result_at))
  shift_times(r, token)
  r[TOKEN], r[MIN_READER], r[NONCE] = token, min_reader, sub(s, HEAD_SIZE + 1, fingerprint_at)
  r[FINGERPRINT], r[DIGEST] = sub(s, fingerprint_at + 1, digest_at), sub(s, digest_at + 1, fields_at)
  r[RESULT] = r[RESULT] and sub(s, result_at + 1)
  return r
end

-- Returns until when replays of the record change nothing: they extend a sliding window after an eighth of it. 0: it is
-- not completed.
local function replay_until(r)
  if r[STATE] ~= COMPLETED then return 0 end
  if not r[VALID_UNTIL] then return MAX_EXACT end
  local slide, valid_until = tonumber(r[SLIDE]), tonumber(r[VALID_UNTIL])
  if slide > 0 then valid_until = valid_until - slide + math.floor(slide / 8) end
  return math.max(0, math.min(valid_until, MAX_EXACT))
end

local function write_record(r)
  local token, nonce, fingerprint, digest, result = r[TOKEN], r[NONCE], r[FINGERPRINT], r[DIGEST], r[RESULT]
  local fields = {unpack(r)}
  shift_times(fields, -token)
  fields[TOKEN], fields[MIN_READER], fields[NONCE], fields[FINGERPRINT], fields[DIGEST] = 0, 0, 0, 0, 0
  fields[RESULT] = result and true
  local packed = pack_fields(fields)
  return pack(HEAD, r[MIN_READER], token, replay_until(r), #nonce, #fingerprint, #digest, #packed)
    .. nonce .. fingerprint .. digest .. packed .. (result or '')
end

-- A limit of 0 means unlimited attempts.
local function attempts_used_up(attempt, max_attempts)
  return max_attempts > 0 and attempt >= max_attempts
end

local function is_over(r, now)
  return r[VALID_UNTIL] and now >= tonumber(r[VALID_UNTIL])
end

-- Returns the time from which the record may be deleted, or nil if that is not known yet.
local function deletable_at(r)
  if r[STATE] == FREE then return 0 end
  if r[STATE] == PENDING then
    if r[AFTER_CRASH] ~= RERUN or r[RELEASED] or not r[LEASE_UNTIL] or attempts_used_up(r[ATTEMPT], r[MAX_ATTEMPTS]) then
      return nil
    end
    return r[LEASE_UNTIL] + KEEP_UNFINISHED
  end
  if r[STATE] == PARKED or not r[VALID_UNTIL] then return nil end
  return tonumber(r[VALID_UNTIL])
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
