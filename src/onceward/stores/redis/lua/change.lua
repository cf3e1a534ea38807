-- Applies a request to a record by the state table.

local SIGNED = ARGV[2]

-- Returns the claim at that position, see claim.lua.
local function read_claim(at)
  local nonce_size, fingerprint_size, fields_size, _, nonce_at = unpack_(CLAIM, REQUESTS, at)
  local fingerprint_at = nonce_at + nonce_size
  local fields_at = fingerprint_at + fingerprint_size
  local f = unpack_fields(sub(REQUESTS, fields_at, fields_at + fields_size - 1))
  return {
    nonce = sub(REQUESTS, nonce_at, fingerprint_at - 1), fingerprint = sub(REQUESTS, fingerprint_at, fields_at - 1),
    lease = f[LEASE_UNTIL], after_crash = f[AFTER_CRASH], max_attempts = f[MAX_ATTEMPTS], owner = f[OWNER],
    arguments = f[ARGUMENTS], note = f[NOTE],
  }
end

-- Returns the completion at that position: its numbers, the sizes of its parts, then the parts.
local function read_completion(at, next_at)
  local token, stored, has_result, window_size, nonce_size, digest_size, note_size, window_at =
    unpack_('<I8I1I1I1I2I2I4', REQUESTS, at)
  local nonce_at = window_at + window_size
  local digest_at = nonce_at + nonce_size
  local note_at = digest_at + digest_size
  local result_at = note_at + note_size
  local window = unpack_fields(sub(REQUESTS, window_at, nonce_at - 1))
  return {
    token = token, window = window[1], validity = window[2], slide = window[3], stored = stored == 1,
    nonce = sub(REQUESTS, nonce_at, digest_at - 1), digest = sub(REQUESTS, digest_at, note_at - 1),
    note = sub(REQUESTS, note_at, result_at - 1), result = has_result == 1 and sub(REQUESTS, result_at, next_at - 1),
  }
end

-- Returns the request of any other verb at that position: the sizes of its parts, then the parts.
local function read_request(at, next_at)
  local numbers_size, nonce_size, digest_size, note_size, type_size, error_size, numbers_at =
    unpack_('<I2I2I2I4I4I4', REQUESTS, at)
  local nonce_at = numbers_at + numbers_size
  local digest_at = nonce_at + nonce_size
  local note_at = digest_at + digest_size
  local type_at = note_at + note_size
  local error_at = type_at + type_size
  local result_at = error_at + error_size
  local n = unpack_fields(sub(REQUESTS, numbers_at, nonce_at - 1))
  return {
    token = n[1], state = n[2], resolution = n[3], duration = n[4], max_attempts = n[5], window = n[6], validity = n[7],
    slide = n[8], stored = n[9], final = n[10], known = n[11], force = n[12], seen = n[13],
    nonce = sub(REQUESTS, nonce_at, digest_at - 1), digest = sub(REQUESTS, digest_at, note_at - 1),
    note = sub(REQUESTS, note_at, type_at - 1), error_type = sub(REQUESTS, type_at, error_at - 1),
    error = sub(REQUESTS, error_at, result_at - 1), result = n[14] and sub(REQUESTS, result_at, next_at - 1),
  }
end

local last_expiry, last_expiry_text  -- most records of a call expire at the same time

-- Stores the record, and returns it as it is stored. Changes `r` like `write_record`.
local function put(key, r)
  local at = is_real and deletable_at(r)
  if at then at = math.max(at, r[TOKEN]) + CLOCK_MARGIN end
  local s = write_record(r)
  if not at or at >= MAX_EXACT then
    redis.call('SET', key, s)
    return s
  end
  if at ~= last_expiry then
    last_expiry, last_expiry_text = at, string.format('%.0f', math.ceil(at / 1000))
  end
  redis.call('SET', key, s, 'PXAT', last_expiry_text)
  return s
end

-- Starts a new cycle of a key that has a record. Only its token matters, because tokens must grow.
local function acquire_again(key, at, old_token)
  if old_token < now then return acquire_new_cycle(key, at) end
  local token = old_token + 1  -- the clock was set back
  local s = new_record(at, token)
  local r = read_record(s)
  shift_times(r, now - token)
  r[CYCLE] = token
  put(key, r)
  return 'ACQUIRED', token
end

local function change(key, s, verb, at, next_at)
  local r = read_record(s)
  local q = (verb == 'complete' and read_completion or verb == 'claim' and read_claim or read_request)(at, next_at)
  local old_state, old_token = r[STATE], r[TOKEN]
  local verdict, changed = (VERBS[verb] or rest()[verb])(r, q)
  if verdict == 'NEW_CYCLE' then return acquire_again(key, at, old_token) end
  if changed then
    if SIGNED ~= '' then sign(entry_of(SIGNED, 1, old_state, old_token, r, id_of(key))) end
    s = put(key, r)
    if verb == 'forget' then
      redis.call('DEL', BASE .. 'h:' .. id_of(key))
    elseif old_state == PARKED or verb == 'resolve' then  -- its history may have no expiry, see history.lua
      local left = redis.call('PTTL', key)
      if left ~= -1 then redis.call('PEXPIRE', BASE .. 'h:' .. id_of(key), string.format('%.0f', math.max(left, 0))) end
    end
    if old_state == PENDING and r[STATE] ~= PENDING or r[RELEASED] then
      redis.pcall('PUBLISH', BASE .. 'w:' .. id_of(key), '')  -- may be forbidden: then waiters poll
    end
  end
  if verb == 'complete' and verdict == 'OK' then return verdict, false end
  return verdict, s
end
