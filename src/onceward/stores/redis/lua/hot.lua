-- The calls that are made most often, and only their usual cases: a first claim, a replay, somebody is running, and the
-- completion of a first attempt. Everything else is left alone and answered with S: then `apply` is asked instead.
--   KEYS, ARGV and the answer: as in apply.lua. Nothing is signed here, and requests are claims or completions.
--   One more form of answers, to a completion by somebody who has the record, if that was never renewed since:
--   D  nothing: it is completed, as it was asked for
--
-- Written for speed: no tables and no functions, records are spliced from bytes. Where what begins (see record.lua):
--   record   1 min_reader  2 state  3 after_crash  4 flags  5 token  13 cycle  21 attempt  25 max_attempts  29 created_at
--            37 claimed_at  45 updated_at  53 renewed_at  61 lease_until  69 retry_at  77 valid_until  85 slide
--            93 lengths: 93 nonce  95 fingerprint  97 digest  99 more  101 scope …  121 error_type  125 error  129 result
--            133 texts: the nonce first, then the fingerprint, then the digest, the result last
--   request  1 verb  2 flags  3 after_crash  4 window  6 token  14 lease  22 max_attempts  26 validity  34 slide
--            42 lengths: 42 nonce  44 fingerprint  46 digest  66 note  78 result        82 texts

local pack, unpack_, sub, byte, char, band = struct.pack, struct.unpack, string.sub, string.byte, string.char, bit.band
local call = redis.pcall
local ZERO, ONE = '\0\0\0\0\0\0\0\0', '\1\0\0\0'
local BASE = sub(KEYS[1], 1, -4)

local now = unpack_('<I8', ARGV[1])
local is_real = now == 0
if is_real then
  local time = call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local NOW = pack('<I8', now)
local answer, at = {NOW}, 1
local new = {}                          -- scores and ids for the index, all in one call

for i = 3, #KEYS do
  local key, q = KEYS[i], ARGV[i]
  local s = call('GET', key)
  local head, payload = 'S', ''
  local nonce_size = unpack_('<I2', q, 42)

  if not s then
    if byte(q, 1) == 0 then -- a first claim
      local leased, lease = band(byte(q, 2), 16) ~= 0, unpack_('<I8', q, 14)
      local record = char(READER) .. '\1' .. sub(q, 3, 3) .. (leased and '\20' or '\4') .. NOW .. NOW .. ONE
        .. sub(q, 22, 25) .. NOW .. NOW .. NOW .. NOW .. (leased and pack('<I8', now + lease) or ZERO)
        .. ZERO .. ZERO .. ZERO .. sub(q, 42)
      local done
      local ends = now + lease + KEEP_UNFINISHED + CLOCK_MARGIN
      if is_real and leased and byte(q, 3) == 0 and sub(q, 22, 25) ~= ONE and ends < 9007199254740992 then
        done = call('SET', key, record, 'PXAT', math.ceil(ends / 1000)) -- as an argument it keeps 17 digits
      else
        done = call('SET', key, record)
      end
      if done.ok then
        head, payload = '\0A', NOW
        new[#new + 1] = 0
        new[#new + 1] = sub(key, #BASE + 3)
      end
    end

  elseif type(s) == 'string' and #s >= 132 and byte(s, 1) <= READER then
    local state, flags = byte(s, 2), byte(s, 4)
    local size, print_size = unpack_('<I2I2', s, 93)
    local is_own = sub(s, 133, 132 + size) == sub(q, 82, 81 + nonce_size)

    if byte(q, 1) == 0 then
      local given = unpack_('<I2', q, 44)
      local is_same = given == 0 or print_size == 0
        or sub(s, 133 + size, 132 + size + print_size) == sub(q, 82 + nonce_size, 81 + nonce_size + given)
      if state == 2 then -- a replay, if it is in its window and that need not be moved
        local in_window = is_own or band(flags, 64) == 0
        if not in_window then
          local ends, slide = unpack_('<I8I8', s, 77)
          in_window = now < ends - slide + math.floor(slide / 8)
        end
        if in_window and (is_own or is_same) then head, payload = '\1R', s end
      elseif state == 1 and is_same and not is_own and band(flags, 2) == 0
        and (band(flags, 16) == 0 or now < unpack_('<I8', s, 61)) then
        head, payload = '\2R', s
      end

    elseif state == 1 and is_own and sub(s, 5, 12) == sub(q, 6, 13) and band(flags, 2) == 0
      and sub(s, 97, 98) == '\0\0' and sub(s, 121, 132) == '\0\0\0\0\0\0\0\0\0\0\0\0' then -- its first completion
      local window, ends, valid_until = byte(q, 4), nil, ZERO
      if window == 2 then
        valid_until = sub(q, 26, 33)
        ends = unpack_('<I8', valid_until)
      elseif window == 1 then
        ends = now + unpack_('<I8', q, 26)
        valid_until = pack('<I8', ends)
      end
      local digest_size = unpack_('<I2', q, 46)
      local middle, result = 132 + size + print_size, sub(q, 82 + nonce_size + digest_size)
      payload = sub(s, 1, 1) .. '\2' .. sub(s, 3, 3) .. char(band(byte(q, 2), 132) + (ends and 64 or 0))
        .. sub(s, 5, 44) .. NOW .. sub(s, 53, 60) .. ZERO .. ZERO .. valid_until .. sub(q, 34, 41)
        .. sub(s, 93, 96) .. sub(q, 46, 47) .. sub(s, 99, 128) .. sub(q, 78, 81)
        .. sub(s, 133, middle) .. sub(q, 82 + nonce_size, 81 + nonce_size + digest_size) .. sub(s, middle + 1)
      local record, done = payload .. result, nil
      if ends then ends = math.max(ends, (unpack_('<I8', s, 5))) + CLOCK_MARGIN end
      if is_real and ends and ends < 9007199254740992 then
        done = call('SET', key, record, 'PXAT', math.ceil(ends / 1000))
      else
        done = call('SET', key, record)
      end
      if done.ok then
        head = '\7C'
        if is_real and band(byte(q, 2), 1) ~= 0 and sub(s, 37, 44) == sub(s, 53, 60) then -- no two calls in one µs
          head, payload = '\7D', ''
        end
        call('PUBLISH', BASE .. 'w:' .. sub(key, #BASE + 3), '')
      else
        payload = ''
      end
    end
  end

  if head == 'S' then head = '\255S' end
  answer[at + 1], answer[at + 2], answer[at + 3] = head, pack('<I4', #payload), payload
  at = at + 3
end
if #new > 0 then redis.call('ZADD', KEYS[1], unpack(new)) end
return table.concat(answer)
