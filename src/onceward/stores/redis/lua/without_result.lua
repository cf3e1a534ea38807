-- Reads records without their results, which may be large.

local PREFIX_SIZE = 4096  -- bytes: enough for nearly every record without its result

-- Returns where the result of a record begins, or nil if the string is not a record.
local function result_position(s)
  if #s < HEAD_SIZE then return nil end
  local _, _, _, nonce_size, fingerprint_size, digest_size, fields_size = unpack_(HEAD, s)
  return HEAD_SIZE + nonce_size + fingerprint_size + digest_size + fields_size
end

-- Returns a record without its result, and its fields; nil instead of the fields if this version
-- cannot read them; nothing if the key holds no string.
local function read_without_result(key)
  local s = redis.pcall('GETRANGE', key, 0, PREFIX_SIZE - 1)
  if type(s) ~= 'string' or s == '' then return nil end
  local at = result_position(s)
  if at and at > #s then s = redis.call('GET', key) end
  s = at and sub(s, 1, at) or s
  local is_readable, r = pcall(read_record, s)
  return s, is_readable and byte(s) <= READER and r or nil
end

