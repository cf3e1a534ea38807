-- The claims that most callers send: for a new key, and for a completed one. The state table handles all other claims.

local REQUESTS = ARGV[3]

-- A claim in the requests: the sizes of its parts, then its parts. They are the nonce, the fingerprint and the fields of a new
-- record, and after how many milliseconds the server deletes that record ('': never). The times among the fields are
-- relative to now.
local CLAIM = '<I2I2I4I1'

local function differs(stored, given)
  return stored ~= '' and given ~= '' and sub(stored, 1, 1) == sub(given, 1, 1) and stored ~= given
end

-- Returns whether the claim at that position is a replay that changes nothing. It reads only the head of the record, which
-- saves the time to decode the fields.
local function is_replay(s, at)
  local _, _, valid_before, nonce_size, fingerprint_size = unpack_(HEAD, s)
  local fingerprint_at = HEAD_SIZE + nonce_size
  local given_nonce_size, given_size, _, _, from = unpack_(CLAIM, REQUESTS, at)
  local fingerprint = sub(REQUESTS, from + given_nonce_size, from + given_nonce_size + given_size - 1)
  return now < valid_before and not differs(sub(s, fingerprint_at + 1, fingerprint_at + fingerprint_size), fingerprint)
end

-- Returns the record that the claim at that position asks for, and its lifetime.
local function new_record(at, token)
  local nonce_size, fingerprint_size, fields_size, lifetime_size, from = unpack_(CLAIM, REQUESTS, at)
  local lifetime_at = from + nonce_size + fingerprint_size + fields_size
  local head = pack(HEAD, READER, token, 0, nonce_size, fingerprint_size, 0, fields_size)
  return head .. sub(REQUESTS, from, lifetime_at - 1), sub(REQUESTS, lifetime_at, lifetime_at + lifetime_size - 1)
end

local function acquire_new_cycle(key, at)
  local s, lifetime = new_record(at, now)
  if is_real and lifetime ~= '' then
    redis.call('SET', key, s, 'PX', lifetime)
  else
    redis.call('SET', key, s)
  end
  return 'ACQUIRED', now
end
