-- The audit trail. An entry holds the signature and what the change did. The hash's numbers are text, written with %.0f.
--   at token_before token_after   3 x 8 bytes
--   count                         4 bytes
--   state_before state_after      2 x 1 byte, 255 for none
--   lengths of the signature (a JSON array, stored as received), id, scope, key   4 x 4 bytes, then those texts

local ENTRY = '<I8I8I8I4BBI4I4I4I4'
local NO_STATE = 255

-- `r` is the record after the change, or nil if the entry counts purged records.
local function entry_of(signed, count, old_state, old_token, r, id)
  local state, token, scope, key = NO_STATE, 0, '', ''
  if r then state, token, scope, key = r[STATE], r[TOKEN], r[SCOPE], r[KEY] end
  return pack(ENTRY, now, old_token, token, count, old_state, state,
    #signed, #id, #scope, #key) .. signed .. id .. scope .. key
end

local function sign(entry)
  local last = tonumber(redis.call('HGET', AUDIT, 'last') or '0') + 1
  redis.call('HSET', AUDIT, 'last', string.format('%.0f', last), string.format('%.0f', last), entry)
  return last
end
