-- Adds events to the histories of records. KEYS: audit, then the keys of each record: the record, its history.
-- ARGV: time, then for each record the number of its events, and for each event its field, its bytes, and `1` if events
-- with the same field are summed.
-- A history is a hash. A field is the token and the name of an event. Its bytes are the first and the last time and the
-- count (8 bytes each), then what only clients read (MessagePack). Events that no longer belong to the record are left out.
-- The reply: the time.

local EVENT, EVENT_SIZE = '<I8I8I8', 24

local function token_of(field)
  return tonumber(string.match(field, '^%d+'))
end

-- Returns the lowest token of events that belong to the record, or nil if there is no record.
local function first_token(r)
  if not r then return nil end
  return r[STATE] == FREE and r[TOKEN] or r[CYCLE]
end

-- A repeated write, because a reply was lost, has the same last time and is not added again.
local function add_event(history, field, event, is_summed)
  local stored = redis.call('HGET', history, field)
  if stored then
    local at, last_at, count = unpack_(EVENT, stored)
    local new_at, new_last_at, new_count = unpack_(EVENT, event)
    if not is_summed or new_last_at == last_at then return end
    event = pack(EVENT, math.min(at, new_at), math.max(last_at, new_last_at), count + new_count)
      .. sub(stored, EVENT_SIZE + 1)
  end
  redis.call('HSET', history, field, event)
end

local function is_older(a, b)
  if a.last_at ~= b.last_at then return a.last_at < b.last_at end
  if a.token ~= b.token then return a.token < b.token end
  return a.field < b.field
end

local function drop_oldest(history)
  local superfluous = redis.call('HLEN', history) - MAX_EVENTS
  if superfluous <= 0 then return end
  local stored, events = redis.call('HGETALL', history), {}
  for i = 1, #stored, 2 do
    local _, last_at = unpack_(EVENT, stored[i + 1])
    events[#events + 1] = {field = stored[i], token = token_of(stored[i]), last_at = last_at}
  end
  table.sort(events, is_older)
  for i = 1, superfluous do redis.call('HDEL', history, events[i].field) end
end

local at = 2
for i = 2, #KEYS, 2 do
  local record, history, last = KEYS[i], KEYS[i + 1], at + 3 * tonumber(ARGV[at])
  local _, r = read_without_result(record)
  local first, is_changed = first_token(r), false
  for n = at + 1, last, 3 do
    if first and token_of(ARGV[n]) >= first then
      add_event(history, ARGV[n], ARGV[n + 1], ARGV[n + 2] == '1')
      is_changed = true
    end
  end
  if is_changed then
    drop_oldest(history)
    expire_with_record(history, record, r)
  end
  at = last + 1
end
return now
