-- Applies a request to a record by the state table.

local SIGNED = ARGV[2]

-- Returns the request of a verb: its numbers and flags, and its texts.
local function read_request(verb, at)
  if verb == 'claim' then
    local f = unpack_fields(ARGV[at + FIELDS_AT])
    return {
      nonce = ARGV[at + NONCE_AT], fingerprint = ARGV[at + FINGERPRINT_AT], lease = f[LEASE_UNTIL],
      after_crash = f[AFTER_CRASH], max_attempts = f[MAX_ATTEMPTS], owner = f[OWNER], arguments = f[ARGUMENTS],
      note = f[NOTE],
    }
  end
  local n = unpack_fields(ARGV[at + 1])
  if verb == 'complete' then
    return {
      token = n[1], window = n[2], validity = n[3], slide = n[4], stored = n[5],
      nonce = ARGV[at + 2], digest = ARGV[at + 3], note = ARGV[at + 4], result = n[6] and ARGV[at + 5],
    }
  end
  return {
    token = n[1], state = n[2], resolution = n[3], duration = n[4], max_attempts = n[5], window = n[6], validity = n[7],
    slide = n[8], stored = n[9], final = n[10], known = n[11], force = n[12], seen = n[13],
    nonce = ARGV[at + 2], digest = ARGV[at + 3], note = ARGV[at + 4], error_type = ARGV[at + 5], error = ARGV[at + 6],
    result = n[14] and ARGV[at + 7],
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
  local r = read_record(new_record(at, token))
  shift_times(r, now - token)
  r[CYCLE] = token
  put(key, r)
  return 'ACQUIRED', token
end

local function change(key, s, at)
  local verb, r = ARGV[at], read_record(s)
  local q = read_request(verb, at)
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
