-- Applies claims, renewals, settlements and forget requests: one request per record, all in one call.
--   KEYS: audit, then one record each. ARGV: time, signature, then one request each.
-- A request is the length of its numbers (1 byte), its numbers (a MessagePack array) and its texts. The numbers are
--   verb flags choice state token duration max_attempts window validity slide
-- and the lengths of the texts, which are the same as in a record. Lua does not roll back. So each item runs in pcall,
-- and everything that can fail precedes its single SET.
--
-- The reply: the time, then for each item its verdict and one of
--   a string   the record
--   a number   the token of a new claim, granted exactly as requested
--   nil        nothing: there is no record, or the request completed it, whose owner knows the rest
-- The verdict 255 is an error: nothing was changed, and the string is the text of the error.

local FIRST_LENGTH_OF_REQUEST = 11
local NAMES = {[0] = 'claim', 'renew', 'complete', 'fail', 'park', 'release', 'resolve', 'forget'}
local VERDICTS = {
  ACQUIRED = 0, REPLAY = 1, RUNNING = 2, MISMATCH = 3, FAILED = 4, PARKED = 5, SETTLED = 6, OK = 7, LOST = 8,
  CONFLICT = 9, REFUSED = 10, ABSENT = 11, SKEW = 12,
}
local ERROR = 255
local SIGNED = ARGV[2]

local function read_request(s)
  local size = byte(s)
  local n = cmsgpack.unpack(sub(s, 2, size + 1))
  local flags = n[2]
  return read_texts({
    verb = NAMES[n[1]], choice = n[3], state = n[4], token = n[5], duration = n[6], max_attempts = n[7],
    window = n[8], validity = n[9], slide = n[10],
    leased = band(flags, LEASED) ~= 0, force = band(flags, RELEASED) ~= 0, known = band(flags, ASK_FIRST) ~= 0,
    seen = band(flags, ASK_FIRST) ~= 0, stored = band(flags, STORED) ~= 0, final = band(flags, FINAL) ~= 0,
    has_result = band(flags, RESULT) ~= 0,
  }, s, size + 2, n, FIRST_LENGTH_OF_REQUEST)
end

local function put(key, r)
  local at = is_real and deletable_at(r)
  if at then
    at = math.max(at, r.token) + CLOCK_MARGIN
  end
  local s = write_record(r)
  if at and at < 9007199254740992 then
    redis.call('SET', key, s, 'PXAT', string.format('%.0f', math.ceil(at / 1000)))
  else
    redis.call('SET', key, s)
  end
  return s
end

-- Starts a new cycle. Only the token of the key's previous cycle matters, because tokens must grow.
local function acquire_new_cycle(key, q, old)
  local token = now
  if old and old.token >= now then token = old.token + 1 end
  put(key, {
    min_reader = READER, state = PENDING, after_crash = q.choice, stored = true, token = token, cycle = token,
    attempt = 1, max_attempts = q.max_attempts, created_at = now, claimed_at = now, updated_at = now,
    renewed_at = now, lease_until = q.leased and now + q.duration or nil, slide = 0,
    nonce = q.nonce, fingerprint = q.fingerprint, digest = '', more = '', scope = q.scope, key = q.key,
    owner = q.owner, arguments = q.arguments, note = q.note, error_type = '', error = '', result = '',
  })
  return VERDICTS.ACQUIRED, token
end

local function apply(key, request)
  local q = read_request(request)
  local s = redis.call('GET', key)
  if not s then
    if q.verb == 'claim' then return acquire_new_cycle(key, q, nil) end
    return q.verb == 'forget' and VERDICTS.OK or VERDICTS.LOST, false
  end
  if byte(s) > READER then return VERDICTS.SKEW, s end
  local r = read_record(s)
  local before = {state = r.state, token = r.token}
  local verdict, changed = VERBS[q.verb](r, q)
  if verdict == 'NEW_CYCLE' then return acquire_new_cycle(key, q, r) end
  if changed then
    if SIGNED ~= '' then sign(entry_of(SIGNED, 1, before, r, id_of(key))) end
    s = put(key, r)
    if before.state == PENDING and r.state ~= PENDING or r.released then
      redis.pcall('PUBLISH', BASE .. 'w:' .. id_of(key), '')  -- may be forbidden: then waiters poll
    end
  end
  if q.verb == 'complete' and verdict == 'OK' then s = false end
  return VERDICTS[verdict], s
end

local answer = {now}
for i = 2, #KEYS do
  local ok, verdict, payload = pcall(apply, KEYS[i], ARGV[i + 1])
  if not ok then
    verdict, payload = ERROR, type(verdict) == 'table' and verdict.err or tostring(verdict)
  end
  answer[#answer + 1] = verdict
  answer[#answer + 1] = payload
end
return answer
