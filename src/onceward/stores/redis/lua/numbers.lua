-- Numbers as 8 bytes, little-endian.

local function number(bytes)
  return (unpack_('<I8', bytes))
end

local function bytes(value)
  return pack('<I8', value)
end

