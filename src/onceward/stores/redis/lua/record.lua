-- The layout of a record, and the keys of a store. Every script begins with this file.
--
-- All keys of a store have the same hash tag, so that they live in one slot of a cluster:
--   {onceward}:r:<id>   a record, under the 32 bytes of its id; expires by itself when it is no longer needed
--   {onceward}:audit    hash: `first` and `last` are numbers, and each number in between is the field of an entry
--   {onceward}:w:<id>   channel, notified when the record is settled
--   {onceward}:n:<id>   the latest state of an entity, see latest.lua; the tombstone of a deleted one expires by itself
--   {onceward}:m:<mark> a processed message or event, see latest.lua; expires by itself
--   {onceward}:h:<id>   the history of a record, see append_history.lua; expires by itself
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

-- The clock is the server's. Only tests pass another time, and then nothing expires by the server's clock.
local now = unpack_('<I8', ARGV[1])
local is_real = now == 0
if is_real then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- The first key of every script on records is the audit trail. It has the prefix of all keys.
local AUDIT = KEYS[1]
