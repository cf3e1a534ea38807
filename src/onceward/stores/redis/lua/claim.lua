-- The claims that most callers send: for a new key, and for a completed one. The state table handles all other claims.

local REQUESTS = ARGV[3]

-- Returns the claim at that position: the sizes of its parts, then the parts. They are the nonce, the fingerprint, the
-- fields of a new record, and after how many milliseconds the server deletes that record ('': never). The times among the
-- fields are relative to now.
local function read_claim(at)
  local nonce_size, fingerprint_size, fields_size, lifetime_size, nonce_at = unpack_('<I2I2I4I1', REQUESTS, at)
  local fingerprint_at = nonce_at + nonce_size
  local fields_at = fingerprint_at + fingerprint_size
  local lifetime_at = fields_at + fields_size
  return {
    nonce = sub(REQUESTS, nonce_at, fingerprint_at - 1), fingerprint = sub(REQUESTS, fingerprint_at, fields_at - 1),
    fields = sub(REQUESTS, fields_at, lifetime_at - 1),
    lifetime = sub(REQUESTS, lifetime_at, lifetime_at + lifetime_size - 1),
  }
end

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

local function new_record(claim, token)
  local nonce, fingerprint, fields = claim.nonce, claim.fingerprint, claim.fields
  return pack(HEAD, READER, token, 0, #nonce, #fingerprint, 0, #fields) .. nonce .. fingerprint .. fields
end

local function acquire_new_cycle(key, claim)
  local s, lifetime = new_record(claim, now), claim.lifetime
  if is_real and lifetime ~= '' then
    redis.call('SET', key, s, 'PX', lifetime)
  else
    redis.call('SET', key, s)
  end
  return 'ACQUIRED', now
end
