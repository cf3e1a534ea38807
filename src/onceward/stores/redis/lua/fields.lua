-- Reads and writes whole records.

local pack_fields, unpack_fields = cmsgpack.pack, cmsgpack.unpack

local BASE = sub(AUDIT, 1, -6)

local function id_of(key)
  return sub(key, #BASE + 3)
end

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

-- Returns the string to store. Changes `r`, because a copy would be slow: afterwards, only its state and flags are valid.
local function write_record(r)
  local token, nonce, fingerprint, digest, result = r[TOKEN], r[NONCE], r[FINGERPRINT], r[DIGEST], r[RESULT]
  local min_reader, replays_end = r[MIN_READER], replay_until(r)
  shift_times(r, -token)
  r[TOKEN], r[MIN_READER], r[NONCE], r[FINGERPRINT], r[DIGEST], r[RESULT] = 0, 0, 0, 0, 0, result and true
  local packed = pack_fields(r)
  return pack(HEAD, min_reader, token, replays_end, #nonce, #fingerprint, #digest, #packed)
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
