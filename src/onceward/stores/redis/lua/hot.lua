-- The calls that are made most often, and only their usual cases: a first claim, a replay, somebody is running, and the
-- completion of a first attempt. Everything else is left alone and answered with S: then `apply` is asked instead.
--   KEYS, ARGV and the answer: as in apply.lua. Nothing is signed here, and requests are claims or completions.
--   One more form of answers, to a completion by somebody who has the record, if that was never renewed since:
--   D  nothing: it is completed, as it was asked for
--
-- Written for speed: records are spliced from bytes. Where what begins (see record.lua):
--   record   1 min_reader  2 state  3 after_crash  4 flags  5 token  13 cycle  21 attempt  25 max_attempts  29 created_at
--            37 claimed_at  45 updated_at  53 renewed_at  61 lease_until  69 retry_at  77 valid_until  85 slide
--            93 lengths: 93 nonce  95 fingerprint  97 digest  99 more  101 scope …  121 error_type  125 error  129 result
--            133 texts: the nonce first, then the fingerprint, then the digest, the result last
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
local LEFT, GRANTED, DONE = '\255S\0\0\0\0', '\0A\8\0\0\0' .. NOW, '\7D\0\0\0\0'
local answer, at = {NOW}, 1
local score = string.format('%.0f', now)
local new, last = {}, 0                 -- scores and ids for the index (see index.lua), all in one call

-- Writes a record that may go at `expiry`; never, if there is none.
local function set(key, record, expiry)
  if expiry then return call('SET', key, record, 'PXAT', expiry) end
  return call('SET', key, record)
end

-- The instant as an argument: nothing expires by another clock than the server's.
local function expiring(ends)
  if is_real and ends < 9007199254740992 then return string.format('%.0f', math.ceil(ends / 1000)) end
end

-- Most requests of a call are of one function, and most that are completed in one call were claimed in one: they differ in
-- few places, and what comes of the rest is made once.
local claim, claimed, claim_expires                             -- what was asked, the record's head, when it may go
local completion, window, before, head, is_brief, completion_expires

for i = 3, #KEYS do
  local key, q = KEYS[i], ARGV[i]
  local s = call('GET', key)
  local said = LEFT

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
        said = GRANTED
        new[last + 1], new[last + 2] = score, sub(key, ID)
        last = last + 2
      end
    end

  elseif type(s) == 'string' and #s >= 132 and byte(s, 1) <= READER then
    local state, _, flags = byte(s, 2, 4)
    local size, print_size, digested = unpack_('<I2I2I2', s, 93)
    local nonce_size, given, digest_size = unpack_('<I2I2I2', q, 42)
    local is_own = sub(s, 133, 132 + size) == sub(q, 82, 81 + nonce_size)

    if byte(q, 1) == 0 then
      local is_same = given == 0 or print_size == 0
        or sub(s, 133 + size, 132 + size + print_size) == sub(q, 82 + nonce_size, 81 + nonce_size + given)
      local verdict
      if state == 2 then -- a replay, if it is in its window and that need not be moved
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
        answer[at], said = verdict .. pack('<I4', #s), s
      end

    elseif state == 1 and is_own and digested == 0 and band(flags, 2) == 0 and sub(s, 5, 12) == sub(q, 6, 13)
      and sub(s, 121, 132) == NO_TEXTS then -- its first completion
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
        is_brief = is_real and band(byte(q, 2), 1) ~= 0 and sub(s, 37, 44) == sub(s, 53, 60) -- no two calls in one µs
      end
      local middle, digest_at = 132 + size + print_size, 82 + nonce_size
      local result = sub(q, digest_at + digest_size)
      local record = head .. sub(s, 93, 96) .. sub(q, 46, 47) .. sub(s, 99, 128) .. sub(q, 78, 81)
        .. sub(s, 133, middle) .. sub(q, digest_at, digest_at + digest_size - 1) .. sub(s, middle + 1) .. result
      if set(key, record, completion_expires).ok then
        call('PUBLISH', BASE .. 'w:' .. sub(key, ID), '')
        if is_brief then
          said = DONE
        else
          at = at + 1
          answer[at], said = '\7C' .. pack('<I4', #record - #result), sub(record, 1, #record - #result)
        end
      end
    end
  end

  at = at + 1
  answer[at] = said
end
if last > 0 then redis.call('ZADD', KEYS[1], unpack(new)) end
return table.concat(answer)
