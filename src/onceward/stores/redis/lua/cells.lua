-- The state table of protocol/transitions.py: what each verb does to a record in each state. The names are the same.
--
-- A cell gets the record `r` and the request `q`. It returns the verdict, and true if it changed the record. Ownership is
-- decided by token and nonce together, never by time alone.

local function next_token(r)
  return r.token < now and now or r.token + 1
end

local function differs(stored, given)
  return stored ~= '' and given ~= '' and sub(stored, 1, 1) == sub(given, 1, 1) and stored ~= given
end

-- Merges two notes, which are JSON objects of texts. The newer value wins.
local function merge_notes(old, new)
  if new == '' then return old end
  if old == '' then return new end
  local all = cjson.decode(old)
  for name, text in pairs(cjson.decode(new)) do all[name] = text end
  return cjson.encode(all)
end

-- Returns the end of the window, or nil if it never ends.
local function window_end(q)
  if q.window == 0 then return nil end
  if q.window == 2 then return q.validity end
  return now + q.validity
end

local function free_record(r)
  r.token = next_token(r)
  r.min_reader = READER
  r.state, r.nonce, r.attempt, r.created_at, r.claimed_at, r.updated_at, r.renewed_at = FREE, '', 0, now, 0, now, 0
  r.lease_until, r.retry_at, r.valid_until, r.slide = nil, nil, nil, 0
  r.after_crash, r.max_attempts, r.fingerprint, r.arguments, r.owner, r.note = RERUN, 0, '', '', '', ''
  r.ask_first, r.released, r.stored, r.final, r.has_result = false, false, true, false, false
  r.result, r.digest, r.error_type, r.error = '', '', '', ''
end

local function acquire_next_attempt(r, q, after_crash, ask_first)
  r.state, r.token, r.nonce, r.attempt = PENDING, next_token(r), q.nonce, r.attempt + 1
  r.claimed_at, r.updated_at, r.renewed_at = now, now, now
  r.lease_until = q.leased and now + q.duration or nil
  r.after_crash, r.max_attempts, r.ask_first, r.released = after_crash, q.max_attempts, ask_first, false
  if r.fingerprint == '' then r.fingerprint = q.fingerprint end
  if r.arguments == '' then r.arguments = q.arguments end
  r.retry_at, r.valid_until, r.owner, r.note = nil, nil, q.owner, merge_notes(r.note, q.note)
  return 'ACQUIRED', true
end

local function park_record(r, error_type, error_text, note)
  r.state, r.updated_at, r.lease_until = PARKED, now, nil
  r.error_type, r.error, r.note = error_type, error_text, merge_notes(r.note, note)
  return 'PARKED', true
end

local function take_over(r, q)
  local after_crash = math.max(r.after_crash, q.choice)
  if after_crash == PARK then
    if r.released then r.nonce = '' end
    return park_record(r, 'Lapsed', 'the owner stopped renewing its lease; it is unknown whether the effect happened', '')
  end
  if after_crash == VERIFY then return acquire_next_attempt(r, q, after_crash, true) end
  if attempts_used_up(r.attempt, q.max_attempts) then
    return park_record(r, 'AttemptsUsedUp', string.format(
      'the owner of attempt %.0f stopped renewing its lease, and no attempt is left', r.attempt), '')
  end
  return acquire_next_attempt(r, q, after_crash, false)
end

local function retry_if_due(r, q)
  if (r.retry_at and now < r.retry_at) or attempts_used_up(r.attempt, q.max_attempts) then return 'FAILED' end
  return acquire_next_attempt(r, q, q.choice, false)
end

local function replay(r)
  local slide = tonumber(r.slide)
  if slide > 0 and r.valid_until and now >= tonumber(r.valid_until) - slide + math.floor(slide / 8) then
    r.valid_until, r.updated_at = now + slide, now
    return 'REPLAY', true
  end
  return 'REPLAY'
end

local function repeat_answer(r, q)
  if r.state == COMPLETED then return 'REPLAY' end
  if r.state ~= PENDING or r.released then return 'SETTLED' end
  if q.leased and r.lease_until and now >= r.lease_until then
    r.lease_until, r.renewed_at, r.updated_at = now + q.duration, now, now
    return 'ACQUIRED', true
  end
  return 'ACQUIRED'
end

local function complete_record(r, q)
  r.state, r.updated_at, r.lease_until, r.ask_first = COMPLETED, now, nil, false
  r.result, r.has_result, r.digest, r.stored = q.result, q.has_result, q.digest, q.stored
  r.error_type, r.error, r.final, r.retry_at = '', '', false, nil
  r.valid_until, r.slide, r.note = window_end(q), q.slide, merge_notes(r.note, q.note)
  return 'OK', true
end

local function fail_record(r, q)
  if r.after_crash == VERIFY and not (q.known or q.final) then
    return park_record(r, q.error_type, q.error, q.note)
  end
  local final = q.final or attempts_used_up(r.attempt, q.max_attempts)
  r.state, r.updated_at, r.lease_until, r.ask_first = FAILED, now, nil, false
  r.error_type, r.error, r.final, r.slide = q.error_type, q.error, final, 0
  if final then
    r.retry_at, r.valid_until = nil, window_end(q)
  else
    r.retry_at, r.valid_until = now + q.duration, now + q.duration + KEEP_UNFINISHED
  end
  r.note = merge_notes(r.note, q.note)
  return 'OK', true
end

local function release_claim(r)
  if r.ask_first then
    r.lease_until, r.attempt, r.released, r.updated_at = now, r.attempt - 1, true, now
  elseif r.attempt <= 1 and r.token == r.cycle then  -- the first of its cycle: its derived keys are unused
    local token, nonce = r.token, r.nonce
    free_record(r)
    r.token, r.nonce, r.released = token, nonce, true
  else
    r.state, r.attempt, r.updated_at, r.lease_until, r.released = FAILED, r.attempt - 1, now, nil, true
    r.final, r.retry_at, r.valid_until = false, now, now + KEEP_UNFINISHED
  end
  return 'OK', true
end

-- ── the verbs ───────────────────────────────────────────────────────────────────────────────────────────────────

local VERBS = {}

-- Checks in this order: newer layout (already checked by the caller), own nonce, end of window, fingerprint, state.
function VERBS.claim(r, q)
  if r.nonce == q.nonce then return repeat_answer(r, q) end
  if r.state == FREE or ((r.state == COMPLETED or r.state == FAILED) and is_over(r, now)) then
    return 'NEW_CYCLE', true
  end
  if differs(r.fingerprint, q.fingerprint) then return 'MISMATCH' end
  if r.state == COMPLETED then return replay(r) end
  if r.state == PARKED then return 'PARKED' end
  if r.state == FAILED then
    if r.final then return 'FAILED' end
    return retry_if_due(r, q)
  end
  if not r.released and (r.lease_until == nil or now < r.lease_until) then return 'RUNNING' end
  return take_over(r, q)
end

local function if_owner(verb)
  return function(r, q)
    if r.token ~= q.token or r.nonce ~= q.nonce then return 'LOST' end
    return verb(r, q)
  end
end

local function is_pending(r)
  return r.state == PENDING and not r.released
end

VERBS.renew = if_owner(function(r, q)
  if not is_pending(r) then return 'LOST' end
  if r.lease_until then r.lease_until = now + q.duration end
  r.renewed_at, r.updated_at, r.note = now, now, merge_notes(r.note, q.note)
  return 'OK', true
end)

VERBS.complete = if_owner(function(r, q)
  if is_pending(r) or r.state == PARKED then return complete_record(r, q) end
  if r.state ~= COMPLETED then return 'LOST' end
  if r.digest == q.digest then return 'OK' end
  return is_over(r, now) and 'LOST' or 'CONFLICT'
end)

VERBS.fail = if_owner(function(r, q)
  if is_pending(r) then return fail_record(r, q) end
  return r.state == FAILED and 'OK' or 'LOST'
end)

VERBS.park = if_owner(function(r, q)
  if is_pending(r) then
    park_record(r, q.error_type, q.error, q.note)
    return 'OK', true
  end
  return r.state == PARKED and 'OK' or 'LOST'
end)

VERBS.release = if_owner(function(r)
  if is_pending(r) then return release_claim(r) end
  if r.state == PENDING then return 'OK' end
  if r.released and (r.state == FREE or (r.state == FAILED and not r.final)) then return 'OK' end
  return 'LOST'
end)

function VERBS.resolve(r, q)
  local resolvable = is_pending(r) or r.state == PARKED or (r.state == FAILED and not is_over(r, now))
  if not resolvable or r.token ~= q.token or r.state ~= q.state then return 'LOST' end
  if r.state == PENDING then
    if not q.force and (r.lease_until == nil or now < r.lease_until) then return 'REFUSED' end
    r.error_type, r.error = 'Released', 'ownership revoked: an operator resolved the attempt'
  end
  r.token, r.nonce, r.lease_until, r.ask_first, r.released = next_token(r), '', nil, false, false
  if q.choice == 0 then return complete_record(r, q) end
  local abandoned = q.choice == 2
  if not abandoned and attempts_used_up(r.attempt, r.max_attempts) then
    r.attempt = r.max_attempts - 1  -- "not applied" asks for another run, so one attempt must be left
  end
  r.state, r.updated_at, r.final, r.note = FAILED, now, abandoned, merge_notes(r.note, q.note)
  if abandoned then
    r.retry_at, r.valid_until = nil, window_end(q)
  else
    r.retry_at, r.valid_until = now, now + KEEP_UNFINISHED
  end
  return 'OK', true
end

function VERBS.forget(r, q)
  if r.state == FREE then return 'OK' end
  if q.seen and (r.token ~= q.token or r.state ~= q.state) then return 'LOST' end
  if is_pending(r) and not q.force and (r.lease_until == nil or now < r.lease_until) then return 'REFUSED' end
  free_record(r)
  return 'OK', true
end
