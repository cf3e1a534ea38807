-- The claims that most callers send: for a new key, and for a completed one. The state table handles all other claims.
-- ARGV of a claim: the verb, the nonce, the fingerprint, the fields of a new record, and after how many milliseconds the
-- server deletes that record ('': never). The times among the fields are relative to now.

local NONCE_AT, FINGERPRINT_AT, FIELDS_AT, LIFETIME_AT = 1, 2, 3, 4

local function differs(stored, given)
  return stored ~= '' and given ~= '' and sub(stored, 1, 1) == sub(given, 1, 1) and stored ~= given
end

-- Returns whether a claim is a replay that changes nothing. It reads only the head of the record, which saves the time
-- to decode the fields.
local function is_replay(s, fingerprint)
  local _, _, valid_before, nonce_size, fingerprint_size = unpack_(HEAD, s)
  local fingerprint_at = HEAD_SIZE + nonce_size
  return now < valid_before and not differs(sub(s, fingerprint_at + 1, fingerprint_at + fingerprint_size), fingerprint)
end

local function new_record(at, token)
  local nonce, fingerprint, fields = ARGV[at + NONCE_AT], ARGV[at + FINGERPRINT_AT], ARGV[at + FIELDS_AT]
  return pack(HEAD, READER, token, 0, #nonce, #fingerprint, 0, #fields) .. nonce .. fingerprint .. fields
end

local function acquire_new_cycle(key, at)
  local s, lifetime = new_record(at, now), ARGV[at + LIFETIME_AT]
  if is_real and lifetime ~= '' then
    redis.call('SET', key, s, 'PX', lifetime)
  else
    redis.call('SET', key, s)
  end
  return 'ACQUIRED', now
end
