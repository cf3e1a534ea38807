-- Applies claims, renewals, settlements and forget requests: one request per record, all in one call.
--   KEYS: ids, audit, then one record each. ARGV: time, signature, then one request each.
-- A request has the head below, followed by texts in the same order as in a record. Lua does not roll back. So each item
-- runs in pcall, and everything that can fail precedes its single SET.
--
-- The reply is one string: the time, then for each item its verdict, its form, a length and that many bytes. Forms:
--   R  the record          C  the record without its result, which is the one in the request
--   A  8 bytes: the token of a new claim, granted exactly as requested          N  nothing: there is no record
--   E  the text of an error; nothing was changed

local REQUEST, REQUEST_SIZE = '<BBBBBI8I8I4c8c8', 41
local NAMES = {[0] = 'claim', 'renew', 'complete', 'fail', 'park', 'release', 'resolve', 'forget'}
local VERDICTS = {
  ACQUIRED = 0, REPLAY = 1, RUNNING = 2, MISMATCH = 3, FAILED = 4, PARKED = 5, SETTLED = 6, OK = 7, LOST = 8,
  CONFLICT = 9, REFUSED = 10, ABSENT = 11, SKEW = 12,
}
local SIGNED = ARGV[2]

local function read_request(s)
  local verb, flags, choice, window, state, token, duration, max_attempts, validity, slide = unpack_(REQUEST, s)
  local q = {
    verb = NAMES[verb], choice = choice, window = window, state = state, token = token, duration = duration,
    max_attempts = max_attempts, validity = validity, slide = slide,
    leased = band(flags, LEASED) ~= 0, force = band(flags, RELEASED) ~= 0, known = band(flags, ASK_FIRST) ~= 0,
    seen = band(flags, ASK_FIRST) ~= 0, stored = band(flags, STORED) ~= 0, final = band(flags, FINAL) ~= 0,
    has_result = band(flags, RESULT) ~= 0,
  }
  return q
end

local function put(key, r, s)
  local at = is_real and deletable_at(r)
  if at then
    at = math.max(at, r.token) + CLOCK_MARGIN
  end
  if at and at < 9007199254740992 then
    redis.call('SET', key, s, 'PXAT', string.format('%.0f', math.ceil(at / 1000)))
  else
    redis.call('SET', key, s)
  end
end

-- Starts a new cycle. Only the token of the key's previous cycle matters, because tokens must grow.
local function acquire_new_cycle(key, request, q, old)
  local token = now
  if old and old.token >= now then token = old.token + 1 end
  local r = {
    min_reader = READER, state = PENDING, after_crash = q.choice, stored = true, token = token, cycle = token,
    attempt = 1, max_attempts = q.max_attempts, created_at = now, claimed_at = now, updated_at = now,
    renewed_at = now, lease_until = q.leased and now + q.duration or nil, slide = ZERO,
  }
  if not old then add(key) end
  put(key, r, write_head(r) .. sub(request, REQUEST_SIZE + 1))
  return VERDICTS.ACQUIRED, 'A', bytes(token)
end

local function apply(key, request)
  local q = read_request(request)
  local s = redis.call('GET', key)
  if not s then
    if q.verb == 'claim' then return acquire_new_cycle(key, request, q, nil) end
    return q.verb == 'forget' and VERDICTS.OK or VERDICTS.LOST, 'N', ''
  end
  local r = read_head(s)
  if r.min_reader > READER then return VERDICTS.SKEW, 'R', s end
  read_texts(r, s, HEAD_SIZE + 1)
  read_texts(q, request, REQUEST_SIZE + 1)
  local before = {state = r.state, token = r.token}
  local verdict, changed = VERBS[q.verb](r, q)
  if verdict == 'NEW_CYCLE' then return acquire_new_cycle(key, request, q, r) end
  if not changed then return VERDICTS[verdict], 'R', s end
  local head, texts = write_head(r), write_texts(r)
  if SIGNED ~= '' then sign(entry_of(SIGNED, 1, before, r, id_of(key))) end
  put(key, r, head .. texts)
  if before.state == PENDING and r.state ~= PENDING or r.released then
    redis.pcall('PUBLISH', BASE .. 'w:' .. id_of(key), '')  -- may be forbidden: then waiters poll
  end
  if q.verb == 'complete' and r.result ~= '' then
    return VERDICTS[verdict], 'C', head .. sub(texts, 1, #texts - #r.result)
  end
  return VERDICTS[verdict], 'R', head .. texts
end

local answer = {bytes(now)}
for i = 3, #KEYS do
  local ok, verdict, form, payload = pcall(apply, KEYS[i], ARGV[i])
  if not ok then
    local text = type(verdict) == 'table' and verdict.err or tostring(verdict)
    verdict, form, payload = 255, 'E', text
  end
  answer[#answer + 1] = pack('<Bc1I4', verdict, form, #payload)
  answer[#answer + 1] = payload
end
return table.concat(answer)
