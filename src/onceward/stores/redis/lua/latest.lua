-- Applies events to the state of their entities, one delivery after the other, by the rules of protocol/latest.py.
--   KEYS: for each delivery its entity, message and event. The entity is repeated for a missing message or event id.
--   ARGV: time, how long to keep marks, how long to keep deleted entities, then one delivery each.
--
-- A state is a head, then texts (little-endian, times in µs):
--   min_reader updated_at expires_at     1 + 2 x 8 bytes; expires_at 0: never
--   exists                               1 byte, 0 for a deleted entity
--   lengths of order more scope entity   2 + 2 + 4 + 4 bytes, and then those texts
--   value                                the rest
-- `more` is for fields of later versions: versions that do not know them preserve them.
-- A mark is created_at, expires_at (2 x 8 bytes), the hash of the content (16 bytes), and the message id.
-- A delivery is not_before (8 bytes), has_message, has_event (1 byte each), the length of the message id (2 bytes), the
-- message id, and the new state from `exists` on.
--
-- The reply is one byte per delivery: the decision, + APPLIES, + CONFLICT; 255 for an error, whose text comes last.
-- Lua does not roll back. So each delivery runs in pcall, and everything that can fail precedes its writes. The state is
-- written first: a mark without its state would be a lost event.

local APPLIED, DUPLICATE_MESSAGE, DUPLICATE_EVENT, STALE, MISMATCH, EVENT_PARKED, SKEW = 0, 1, 2, 3, 4, 5, 6
local EVENT_MISMATCH = 7
local APPLIES, CONFLICT, NOT_DECIDED = 16, 32, 255
local STATE_FORMAT = '<BI8I8BI2I2I4I4'
local STATE_SIZE = 30
local CONTENT, MARK_SIZE = 16, 32
local PREFIX_SIZE = 256  -- bytes: contains nearly every order, but few values

local char = string.char

-- Compares byte by byte, because Lua's `<` follows the server's locale.
local function is_greater(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end

local MARKS_END, DELETED_END = now + number(ARGV[2]), now + number(ARGV[3])  -- beyond 2^53 rounded by some µs

local function put(key, s, ends)
  if ends and is_real then
    redis.call('SET', key, s, 'PXAT', string.format('%.0f', math.ceil(ends / 1000)))
  else
    redis.call('SET', key, s)
  end
end

-- Returns the order of the state and its `more`, or nil if there is no state. A third result, true, means that a newer
-- version wrote the state and it must not be changed.
local function read_state(key)
  local s = redis.call('GETRANGE', key, 0, PREFIX_SIZE - 1)
  if s == '' then return nil, '' end
  if byte(s) > READER then return nil, '', true end
  local _, _, expires_at, _, order, more = unpack_(STATE_FORMAT, s)
  if expires_at > 0 and expires_at <= now then return nil, '' end
  local last = STATE_SIZE + order + more
  if last > PREFIX_SIZE then s = redis.call('GETRANGE', key, 0, last - 1) end
  return sub(s, STATE_SIZE + 1, STATE_SIZE + order), sub(s, STATE_SIZE + order + 1, last)
end

-- Returns the content hash of a mark that has not expired.
local function read_mark(key)
  local s = redis.call('GET', key)
  if s and number(sub(s, 9, 16)) > now then return sub(s, 17, MARK_SIZE) end
end

local function write_state(key, state, order, more)
  local exists = byte(state) == 1
  if more ~= '' then
    state = sub(state, 1, 3) .. pack('<I2', #more) .. sub(state, 6, 13) .. order .. more .. sub(state, 14 + #order)
  end
  local ends = not exists and DELETED_END or nil
  put(key, char(READER) .. bytes(now) .. bytes(ends or 0) .. state, ends)
end

-- Compares two content hashes. Hashes of different encoder versions cannot be compared and count as equal.
local function same_content(seen, content)
  return seen == content or byte(seen) ~= byte(content)
end

-- Returns the decision about a delivery that no mark knows, given the order of the stored state.
local function decide(order, before, is_newer)
  if not before then return APPLIED + APPLIES end
  if order == before then return DUPLICATE_MESSAGE end
  local conflict = sub(order, 1, -CONTENT - 1) == sub(before, 1, -CONTENT - 1) and CONFLICT or 0
  return (is_newer and APPLIED + APPLIES or STALE) + conflict
end

local function apply(entity, message, event, q)
  local not_before, has_message, has_event, trace_size = unpack_('<I8BBI2', q)
  local state = sub(q, 13 + trace_size)
  local order = sub(state, 14, 13 + unpack_('<I2', state, 2))
  local content = sub(order, -CONTENT)
  local before, more, is_closed = read_state(entity)
  if is_closed then return SKEW end
  local seen = has_message == 1 and read_mark(message)
  if seen then return same_content(seen, content) and DUPLICATE_MESSAGE or MISMATCH end
  if now < not_before then return EVENT_PARKED end
  local known = has_event == 1 and read_mark(event)
  if known and not same_content(known, content) then return EVENT_MISMATCH end
  local mark = bytes(now) .. bytes(MARKS_END) .. content .. sub(q, 13, 12 + trace_size)
  local answer = DUPLICATE_EVENT
  if not known then
    local is_newer = not before or is_greater(order, before)
    answer = decide(order, before, is_newer)
    if is_newer then write_state(entity, state, order, more) end
    if has_event == 1 then put(event, mark, MARKS_END) end
  end
  if has_message == 1 then put(message, mark, MARKS_END) end
  return answer
end

local answers, wrong = {}, ''
for i = 4, #ARGV do
  local at = 3 * (i - 4)
  local ok, answer = pcall(apply, KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], ARGV[i])
  if not ok then
    if wrong == '' then wrong = type(answer) == 'table' and answer.err or tostring(answer) end
    answer = NOT_DECIDED
  end
  answers[#answers + 1] = char(answer)
end
return table.concat(answers) .. wrong
