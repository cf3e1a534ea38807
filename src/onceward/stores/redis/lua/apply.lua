-- Applies claims, renewals, settlements and forget requests: one request per record, all in one call. The script has the
-- functions of audit.lua only if the call is signed.
--   KEYS: audit, then one record each. ARGV: time, signature, then for each request its verb, its numbers and flags (a
--   MessagePack array) and its texts, see `read_claim`, `read_completion` and `read_change`.
-- Lua does not roll back. So each item runs in pcall, and everything that can fail precedes its single SET.
--
-- The reply: the time, then for each item its verdict and one of
--   a string   the record, as it is stored
--   a number   the token of a new claim, granted exactly as requested
--   nil        there is no record, or the request completed the record, and its owner knows the fields
-- The verdict ERROR means that nothing was changed. The string is the text of the error.

local SIGNED = ARGV[2]
local SIZES, CHANGE_SIZE = {claim = 9, complete = 6}, 8  -- arguments of each verb
local FINGERPRINT_ARGUMENT = 3

local function read_claim(at)
  local n = cmsgpack.unpack(ARGV[at + 1])
  return {
    lease = n[1], after_crash = n[2], max_attempts = n[3],
    nonce = ARGV[at + 2], fingerprint = ARGV[at + FINGERPRINT_ARGUMENT], scope = ARGV[at + 4], key = ARGV[at + 5], owner = ARGV[at + 6],
    arguments = ARGV[at + 7], note = ARGV[at + 8],
  }
end

local function read_completion(at)
  local n = cmsgpack.unpack(ARGV[at + 1])
  return {
    token = n[1], window = n[2], validity = n[3], slide = n[4], stored = n[5],
    nonce = ARGV[at + 2], digest = ARGV[at + 3], note = ARGV[at + 4], result = n[6] and ARGV[at + 5],
  }
end

local function read_change(at)
  local n = cmsgpack.unpack(ARGV[at + 1])
  return {
    token = n[1], state = n[2], resolution = n[3], duration = n[4], max_attempts = n[5], window = n[6], validity = n[7],
    slide = n[8], stored = n[9], final = n[10], known = n[11], force = n[12], seen = n[13],
    nonce = ARGV[at + 2], digest = ARGV[at + 3], note = ARGV[at + 4], error_type = ARGV[at + 5], error = ARGV[at + 6],
    result = n[14] and ARGV[at + 7],
  }
end

local last_expiry, last_expiry_text  -- most records of a call expire at the same time

-- Stores the record, and returns it as it is stored.
local function put(key, r)
  local s = write_record(r)
  local at = is_real and deletable_at(r)
  if at then at = math.max(at, r[TOKEN]) + CLOCK_MARGIN end
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

-- Starts a new cycle. Only the token of the key's previous cycle matters, because tokens must grow.
local function acquire_new_cycle(key, q, old)
  local token = now
  if old and old[TOKEN] >= now then token = old[TOKEN] + 1 end
  put(key, {
    token, READER, PENDING, q.after_crash, 1, q.max_attempts,
    false, false, true, false,                                                  -- ask_first released stored final
    token, now, now, now, now, q.lease and now + q.lease, false, false,         -- cycle and times
    0, q.nonce, q.fingerprint, '', q.scope, q.key, q.owner, q.arguments, q.note,  -- slide and texts
    '', '', false,                                                              -- error_type error result
  })
  return 'ACQUIRED', token
end

-- Returns whether a claim is a replay that changes nothing. Reading only the head of the record halves the time of a
-- replay. In all other cases, the state table decides.
local function is_replay(s, fingerprint)
  local _, _, until_, nonce_size, fingerprint_size = unpack_(HEAD, s)
  local fingerprint_at = HEAD_SIZE + nonce_size
  return now < until_ and not differs(sub(s, fingerprint_at + 1, fingerprint_at + fingerprint_size), fingerprint)
end

local function read_request(verb, at)
  if verb == 'claim' then return read_claim(at) end
  if verb == 'complete' then return read_completion(at) end
  return read_change(at)
end

local function apply(key, at)
  local verb, s = ARGV[at], redis.call('GET', key)
  if not s then
    if verb == 'claim' then return acquire_new_cycle(key, read_claim(at), nil) end
    return verb == 'forget' and 'OK' or 'LOST', false
  end
  if byte(s) > READER then return 'SKEW', s end
  if verb == 'claim' and is_replay(s, ARGV[at + FINGERPRINT_ARGUMENT]) then return 'REPLAY', s end
  local r, q = read_record(s), read_request(verb, at)
  local old_state, old_token = r[STATE], r[TOKEN]
  local verdict, changed = (VERBS[verb] or rest()[verb])(r, q)
  if verdict == 'NEW_CYCLE' then return acquire_new_cycle(key, q, r) end
  if changed then
    if SIGNED ~= '' then sign(entry_of(SIGNED, 1, old_state, old_token, r, id_of(key))) end
    s = put(key, r)
    if old_state == PENDING and r[STATE] ~= PENDING or r[RELEASED] then
      redis.pcall('PUBLISH', BASE .. 'w:' .. id_of(key), '')  -- may be forbidden: then waiters poll
    end
  end
  if verb == 'complete' and verdict == 'OK' then return verdict, false end
  return verdict, s
end

local answer, at = {now}, 3
for i = 2, #KEYS do
  local ok, verdict, payload = pcall(apply, KEYS[i], at)
  if not ok then
    verdict, payload = 'ERROR', type(verdict) == 'table' and verdict.err or tostring(verdict)
  end
  answer[#answer + 1] = verdict
  answer[#answer + 1] = payload
  at = at + (SIZES[ARGV[at]] or CHANGE_SIZE)
end
return answer
