-- The fast path for the most frequent cases: a first claim, a replay, a claim of a running key, and the completion of a
-- first attempt. In all other cases the script changes nothing and replies with form S; the client then calls `apply`.
--   KEYS, ARGV and the reply: as in apply.lua. Requests are claims or completions and are never signed.
--   One more form, for a completion whose caller has the record, if the lease was never renewed:
--   D  nothing: completed exactly as requested
--
-- Written for speed: records are spliced from bytes. Byte offsets (see record.lua):
--   record   1 min_reader  2 state  3 after_crash  4 flags  5 token  13 cycle  21 attempt  25 max_attempts  29 created_at
--            37 claimed_at  45 updated_at  53 renewed_at  61 lease_until  69 retry_at  77 valid_until  85 slide
--            93 lengths: 93 nonce  95 fingerprint  97 digest  99 more  101 scope …  121 error_type  125 error  129 result
--            133 texts: nonce, fingerprint, digest, …, and the result last
--   request  1 verb  2 flags  3 after_crash  4 window  6 token  14 lease  22 max_attempts  26 validity  34 slide
--            42 lengths: 42 nonce  44 fingerprint  46 digest  66 note  78 result        82 texts

local pack, unpack_, sub, byte, char, band = struct.pack, struct.unpack, string.sub, string.byte, string.char, bit.band
local call = redis.pcall
local ZERO, ONE, NO_TEXTS = '\0\0\0\0\0\0\0\0', '\1\0\0\0', '\0\0\0\0\0\0\0\0\0\0\0\0'
local BASE = sub(KEYS[1], 1, -4)
local ID = #BASE + 3

local now = unpack_('<I8', ARGV[1])
local is_real = now == 0
if is_real then
  local time = call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local NOW = pack('<I8', now)
local NOT_HANDLED, GRANTED, DONE = '\255S\0\0\0\0', '\0A\8\0\0\0' .. NOW, '\7D\0\0\0\0'
local answer, at = {NOW}, 1
local score = string.format('%.0f', now)
local new, last = {}, 0                 -- scores and ids for the index (see index.lua), added in one call

-- Writes a record that expires at `expiry`, or never if that is nil.
local function set(key, record, expiry)
  if expiry then return call('SET', key, record, 'PXAT', expiry) end
  return call('SET', key, record)
end

-- Returns the expiry as a command argument. With a test clock nothing expires, because the server's clock differs.
local function expiring(ends)
  if is_real and ends < 9007199254740992 then return string.format('%.0f', math.ceil(ends / 1000)) end
end

-- Most requests of a call come from one function, and most completions of a call were claimed in one call. They differ in
-- few fields, so the parts that they share are built once and cached here.
local claim, claimed, claim_expires                             -- request head, record head, expiry
local completion, window, before, head, is_brief, completion_expires

for i = 3, #KEYS do
  local key, q = KEYS[i], ARGV[i]
  local s = call('GET', key)
  local reply = NOT_HANDLED

  if not s then
    if byte(q, 1) == 0 then -- a first claim
      local asked = sub(q, 1, 41)
      if asked ~= claim then
        local leased, lease = band(byte(q, 2), 16) ~= 0, unpack_('<I8', q, 14)
        claim, claim_expires = asked, nil
        claimed = char(READER) .. '\1' .. sub(q, 3, 3) .. (leased and '\20' or '\4') .. NOW .. NOW .. ONE
          .. sub(q, 22, 25) .. NOW .. NOW .. NOW .. NOW .. (leased and pack('<I8', now + lease) or ZERO)
          .. ZERO .. ZERO .. ZERO
        if leased and byte(q, 3) == 0 and sub(q, 22, 25) ~= ONE then
          claim_expires = expiring(now + lease + KEEP_UNFINISHED + CLOCK_MARGIN)
        end
      end
      if set(key, claimed .. sub(q, 42), claim_expires).ok then
        reply = GRANTED
        new[last + 1], new[last + 2] = score, sub(key, ID)
        last = last + 2
      end
    end

  elseif type(s) == 'string' and #s >= 132 and byte(s, 1) <= READER then
    local state, _, flags = byte(s, 2, 4)
    local nonce_length, fingerprint_size, stored_digest = unpack_('<I2I2I2', s, 93)
    local nonce_size, given, digest_size = unpack_('<I2I2I2', q, 42)
    local is_own = sub(s, 133, 132 + nonce_length) == sub(q, 82, 81 + nonce_size)

    if byte(q, 1) == 0 then
      local is_same = given == 0 or fingerprint_size == 0
        or sub(s, 133 + nonce_length, 132 + nonce_length + fingerprint_size)
          == sub(q, 82 + nonce_size, 81 + nonce_size + given)
      local verdict
      if state == 2 then -- a replay, if it is within its window and a sliding window need not move
        local in_window = is_own or band(flags, 64) == 0
        if not in_window then
          local until_, slide = unpack_('<I8I8', s, 77)
          in_window = now < until_ - slide + math.floor(slide / 8)
        end
        if in_window and (is_own or is_same) then verdict = '\1R' end
      elseif state == 1 and is_same and not is_own and band(flags, 2) == 0
        and (band(flags, 16) == 0 or now < unpack_('<I8', s, 61)) then
        verdict = '\2R'
      end
      if verdict then
        at = at + 1
        answer[at], reply = verdict .. pack('<I4', #s), s
      end

    elseif state == 1 and is_own and stored_digest == 0 and band(flags, 2) == 0 and sub(s, 5, 12) == sub(q, 6, 13)
      and sub(s, 121, 132) == NO_TEXTS then -- the first completion
      local asked, wanted, found = sub(q, 1, 5), sub(q, 26, 41), sub(s, 1, 60)
      if found ~= before or asked ~= completion or wanted ~= window then
        local kind, ends, valid_until = byte(q, 4), nil, ZERO
        completion, window, before, completion_expires = asked, wanted, found, nil
        if kind == 2 then
          valid_until = sub(q, 26, 33)
          ends = unpack_('<I8', valid_until)
        elseif kind == 1 then
          ends = now + unpack_('<I8', q, 26)
          valid_until = pack('<I8', ends)
        end
        head = sub(s, 1, 1) .. '\2' .. sub(s, 3, 3) .. char(band(byte(q, 2), 132) + (ends and 64 or 0))
          .. sub(s, 5, 44) .. NOW .. sub(s, 53, 60) .. ZERO .. ZERO .. valid_until .. sub(q, 34, 41)
        if ends then completion_expires = expiring(math.max(ends, (unpack_('<I8', s, 5))) + CLOCK_MARGIN) end
        -- claimed_at == renewed_at: never renewed, because no two calls share a µs
        is_brief = is_real and band(byte(q, 2), 1) ~= 0 and sub(s, 37, 44) == sub(s, 53, 60)
      end
      local middle, digest_at = 132 + nonce_length + fingerprint_size, 82 + nonce_size
      local result = sub(q, digest_at + digest_size)
      local record = head .. sub(s, 93, 96) .. sub(q, 46, 47) .. sub(s, 99, 128) .. sub(q, 78, 81)
        .. sub(s, 133, middle) .. sub(q, digest_at, digest_at + digest_size - 1) .. sub(s, middle + 1) .. result
      if set(key, record, completion_expires).ok then
        call('PUBLISH', BASE .. 'w:' .. sub(key, ID), '')
        if is_brief then
          reply = DONE
        else
          at = at + 1
          answer[at], reply = '\7C' .. pack('<I4', #record - #result), sub(record, 1, #record - #result)
        end
      end
    end
  end

  at = at + 1
  answer[at] = reply
end
if last > 0 then redis.call('ZADD', KEYS[1], unpack(new)) end
return table.concat(answer)
