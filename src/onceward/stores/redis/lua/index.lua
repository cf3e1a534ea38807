-- The ids of all records, ordered by their first claim, so a new id is always appended. Inserting at a random position of
-- a large sorted set would take the server as long as the rest of a claim.
--
-- A scan continues after a cursor: the score and the id of the last id that it visited.

local function add(key)
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), id_of(key))
end

-- Compares byte by byte, because Lua's `<` follows the server's locale.
local function is_before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- Returns how many ids precede this position, for an id that was deleted, or claimed anew and so moved.
local function ids_until(score, id)
  local at = string.format('%.0f', score)
  local low = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. at)
  local high = low + redis.call('ZCOUNT', KEYS[1], at, at)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_before(id, redis.call('ZRANGE', KEYS[1], middle, middle)[1]) then high = middle else low = middle + 1 end
  end
  return low
end

-- Returns up to `max_ids` ids, and for each the cursor that continues after it. Fewer ids than requested: the end.
local function ids_after(cursor, max_ids)
  local from = 0
  if cursor ~= '' then
    local score, id = number(sub(cursor, 1, 8)), sub(cursor, 9)
    local place = redis.call('ZSCORE', KEYS[1], id)
    if place and tonumber(place) == score then
      from = redis.call('ZRANK', KEYS[1], id) + 1
    else
      from = ids_until(score, id)
    end
  end
  local found = redis.call('ZRANGE', KEYS[1], from, from + max_ids - 1, 'WITHSCORES')
  local ids, cursors = {}, {}
  for i = 1, #found, 2 do
    ids[#ids + 1] = found[i]
    cursors[#cursors + 1] = bytes(tonumber(found[i + 1])) .. found[i]
  end
  return ids, cursors
end
