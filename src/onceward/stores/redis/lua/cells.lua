-- The state table of protocol/transitions.py: what each verb does to a record in each state. The names are the same.
--
-- A cell gets the record `r` and the request `q`. It returns the verdict, and true if it changed the record. Ownership is
-- decided by token and nonce together, never by time alone.
--
-- The server runs the whole text of a script at every call, which creates each function anew. So the cells that few calls
-- need are created by `define_rest`, when a call needs one.

-- Merges two notes, which are JSON objects of texts. The newer value wins.
local function merge_notes(old, new)
  if new == '' then return old end
  if old == '' then return new end
  local all = cjson.decode(old)
  for name, text in pairs(cjson.decode(new)) do all[name] = text end
  return cjson.encode(all)
end

-- Returns the end of the window, or false if it never ends.
local function window_end(q)
  if q.window == 0 then return false end
  if q.window == 2 then return q.validity end
  return now + q.validity
end

local function is_owner(r, q)
  return r[TOKEN] == q.token and r[NONCE] == q.nonce
end

local function is_pending(r)
  return r[STATE] == PENDING and not r[RELEASED]
end

local function complete_record(r, q)
  r[STATE], r[UPDATED_AT], r[LEASE_UNTIL], r[ASK_FIRST] = COMPLETED, now, false, false
  r[RESULT], r[DIGEST], r[STORED] = q.result, q.digest, q.stored
  r[ERROR_TYPE], r[ERROR], r[FINAL], r[RETRY_AT] = '', '', false, false
  r[VALID_UNTIL], r[SLIDE], r[NOTE] = window_end(q), q.slide, merge_notes(r[NOTE], q.note)
  return 'OK', true
end

local VERBS = {}

function VERBS.complete(r, q)
  if not is_owner(r, q) then return 'LOST' end
  if is_pending(r) or r[STATE] == PARKED then return complete_record(r, q) end
  if r[STATE] ~= COMPLETED then return 'LOST' end
  if r[DIGEST] == q.digest then return 'OK' end
  return is_over(r, now) and 'LOST' or 'CONFLICT'
end

-- ── the cells that few calls need ───────────────────────────────────────────────────────────────────────────────────

local function define_rest()
  local REST = {}

  local function next_token(r)
    return r[TOKEN] < now and now or r[TOKEN] + 1
  end

  local function replay(r)
    local slide = tonumber(r[SLIDE])
    if slide > 0 and now >= replay_until(r) then
      r[VALID_UNTIL], r[UPDATED_AT] = now + slide, now
      return 'REPLAY', true
    end
    return 'REPLAY'
  end

  local function repeat_answer(r, q)
    if r[STATE] == COMPLETED then return 'REPLAY' end
    if r[STATE] ~= PENDING or r[RELEASED] then return 'SETTLED' end
    if q.lease and r[LEASE_UNTIL] and now >= r[LEASE_UNTIL] then
      r[LEASE_UNTIL], r[RENEWED_AT], r[UPDATED_AT] = now + q.lease, now, now
      return 'ACQUIRED', true
    end
    return 'ACQUIRED'
  end

  local function free_record(r)
    r[TOKEN] = next_token(r)
    r[MIN_READER] = READER
    r[STATE], r[NONCE], r[ATTEMPT], r[CREATED_AT], r[CLAIMED_AT], r[UPDATED_AT], r[RENEWED_AT] = FREE, '', 0, now, 0, now, 0
    r[LEASE_UNTIL], r[RETRY_AT], r[VALID_UNTIL], r[SLIDE] = false, false, false, 0
    r[AFTER_CRASH], r[MAX_ATTEMPTS], r[FINGERPRINT], r[ARGUMENTS], r[OWNER], r[NOTE] = RERUN, 0, '', '', '', ''
    r[ASK_FIRST], r[RELEASED], r[STORED], r[FINAL] = false, false, true, false
    r[RESULT], r[DIGEST], r[ERROR_TYPE], r[ERROR] = false, '', '', ''
  end

  local function acquire_next_attempt(r, q, after_crash, ask_first)
    r[STATE], r[TOKEN], r[NONCE], r[ATTEMPT] = PENDING, next_token(r), q.nonce, r[ATTEMPT] + 1
    r[CLAIMED_AT], r[UPDATED_AT], r[RENEWED_AT] = now, now, now
    r[LEASE_UNTIL] = q.lease and now + q.lease
    r[AFTER_CRASH], r[MAX_ATTEMPTS], r[ASK_FIRST], r[RELEASED] = after_crash, q.max_attempts, ask_first, false
    if r[FINGERPRINT] == '' then r[FINGERPRINT] = q.fingerprint end
    if r[ARGUMENTS] == '' then r[ARGUMENTS] = q.arguments end
    r[RETRY_AT], r[VALID_UNTIL], r[OWNER], r[NOTE] = false, false, q.owner, merge_notes(r[NOTE], q.note)
    return 'ACQUIRED', true
  end

  local function park_record(r, error_type, error_text, note)
    r[STATE], r[UPDATED_AT], r[LEASE_UNTIL] = PARKED, now, false
    r[ERROR_TYPE], r[ERROR], r[NOTE] = error_type, error_text, merge_notes(r[NOTE], note)
    return 'PARKED', true
  end

  local function take_over(r, q)
    local after_crash = math.max(r[AFTER_CRASH], q.after_crash)
    if after_crash == PARK then
      if r[RELEASED] then r[NONCE] = '' end
      return park_record(r, 'Lapsed', 'the owner stopped renewing its lease; it is unknown whether the effect happened', '')
    end
    if after_crash == VERIFY then return acquire_next_attempt(r, q, after_crash, true) end
    if attempts_used_up(r[ATTEMPT], q.max_attempts) then
      return park_record(r, 'AttemptsUsedUp', string.format(
        'the owner of attempt %.0f stopped renewing its lease, and no attempt is left', r[ATTEMPT]), '')
    end
    return acquire_next_attempt(r, q, after_crash, false)
  end

  local function retry_if_due(r, q)
    if (r[RETRY_AT] and now < r[RETRY_AT]) or attempts_used_up(r[ATTEMPT], q.max_attempts) then return 'FAILED' end
    return acquire_next_attempt(r, q, q.after_crash, false)
  end

  local function fail_record(r, q)
    if r[AFTER_CRASH] == VERIFY and not (q.known or q.final) then
      return park_record(r, q.error_type, q.error, q.note)
    end
    local final = q.final or attempts_used_up(r[ATTEMPT], q.max_attempts)
    r[STATE], r[UPDATED_AT], r[LEASE_UNTIL], r[ASK_FIRST] = FAILED, now, false, false
    r[ERROR_TYPE], r[ERROR], r[FINAL], r[SLIDE] = q.error_type, q.error, final, 0
    if final then
      r[RETRY_AT], r[VALID_UNTIL] = false, window_end(q)
    else
      r[RETRY_AT], r[VALID_UNTIL] = now + q.duration, now + q.duration + KEEP_UNFINISHED
    end
    r[NOTE] = merge_notes(r[NOTE], q.note)
    return 'OK', true
  end

  local function release_claim(r)
    if r[ASK_FIRST] then
      r[LEASE_UNTIL], r[ATTEMPT], r[RELEASED], r[UPDATED_AT] = now, r[ATTEMPT] - 1, true, now
    elseif r[ATTEMPT] <= 1 and r[TOKEN] == r[CYCLE] then  -- the first of its cycle: its derived keys are unused
      local token, nonce = r[TOKEN], r[NONCE]
      free_record(r)
      r[TOKEN], r[NONCE], r[RELEASED] = token, nonce, true
    else
      r[STATE], r[ATTEMPT], r[UPDATED_AT], r[LEASE_UNTIL], r[RELEASED] = FAILED, r[ATTEMPT] - 1, now, false, true
      r[FINAL], r[RETRY_AT], r[VALID_UNTIL] = false, now, now + KEEP_UNFINISHED
    end
    return 'OK', true
  end

  -- Checks in this order: newer layout (already checked by the caller), own nonce, end of window, fingerprint, state.
  function REST.claim(r, q)
    if r[NONCE] == q.nonce then return repeat_answer(r, q) end
    if r[STATE] == FREE or ((r[STATE] == COMPLETED or r[STATE] == FAILED) and is_over(r, now)) then
      return 'NEW_CYCLE', true
    end
    if differs(r[FINGERPRINT], q.fingerprint) then return 'MISMATCH' end
    if r[STATE] == COMPLETED then return replay(r) end
    if r[STATE] == PARKED then return 'PARKED' end
    if r[STATE] == FAILED then
      if r[FINAL] then return 'FAILED' end
      return retry_if_due(r, q)
    end
    if not r[RELEASED] and (not r[LEASE_UNTIL] or now < r[LEASE_UNTIL]) then return 'RUNNING' end
    return take_over(r, q)
  end

  function REST.renew(r, q)
    if not is_owner(r, q) or not is_pending(r) then return 'LOST' end
    if r[LEASE_UNTIL] then r[LEASE_UNTIL] = now + q.duration end
    r[RENEWED_AT], r[UPDATED_AT], r[NOTE] = now, now, merge_notes(r[NOTE], q.note)
    return 'OK', true
  end

  function REST.fail(r, q)
    if not is_owner(r, q) then return 'LOST' end
    if is_pending(r) then return fail_record(r, q) end
    return r[STATE] == FAILED and 'OK' or 'LOST'
  end

  function REST.park(r, q)
    if not is_owner(r, q) then return 'LOST' end
    if is_pending(r) then
      park_record(r, q.error_type, q.error, q.note)
      return 'OK', true
    end
    return r[STATE] == PARKED and 'OK' or 'LOST'
  end

  function REST.release(r, q)
    if not is_owner(r, q) then return 'LOST' end
    if is_pending(r) then return release_claim(r) end
    if r[STATE] == PENDING then return 'OK' end
    if r[RELEASED] and (r[STATE] == FREE or (r[STATE] == FAILED and not r[FINAL])) then return 'OK' end
    return 'LOST'
  end

  function REST.resolve(r, q)
    local resolvable = is_pending(r) or r[STATE] == PARKED or (r[STATE] == FAILED and not is_over(r, now))
    if not resolvable or r[TOKEN] ~= q.token or r[STATE] ~= q.state then return 'LOST' end
    if r[STATE] == PENDING then
      if not q.force and (not r[LEASE_UNTIL] or now < r[LEASE_UNTIL]) then return 'REFUSED' end
      r[ERROR_TYPE], r[ERROR] = 'Released', 'ownership revoked: an operator resolved the attempt'
    end
    r[TOKEN], r[NONCE], r[LEASE_UNTIL], r[ASK_FIRST], r[RELEASED] = next_token(r), '', false, false, false
    if q.resolution == 0 then return complete_record(r, q) end
    local abandoned = q.resolution == 2
    if not abandoned and attempts_used_up(r[ATTEMPT], r[MAX_ATTEMPTS]) then
      r[ATTEMPT] = r[MAX_ATTEMPTS] - 1  -- "not applied" asks for another run, so one attempt must be left
    end
    r[STATE], r[UPDATED_AT], r[FINAL], r[NOTE] = FAILED, now, abandoned, merge_notes(r[NOTE], q.note)
    if abandoned then
      r[RETRY_AT], r[VALID_UNTIL] = false, window_end(q)
    else
      r[RETRY_AT], r[VALID_UNTIL] = now, now + KEEP_UNFINISHED
    end
    return 'OK', true
  end

  function REST.forget(r, q)
    if r[STATE] == FREE then return 'OK' end
    if q.seen and (r[TOKEN] ~= q.token or r[STATE] ~= q.state) then return 'LOST' end
    if is_pending(r) and not q.force and (not r[LEASE_UNTIL] or now < r[LEASE_UNTIL]) then return 'REFUSED' end
    free_record(r)
    return 'OK', true
  end

  return REST
end

local defined

-- Returns the cells that few calls need.
local function rest()
  defined = defined or define_rest()
  return defined
end
