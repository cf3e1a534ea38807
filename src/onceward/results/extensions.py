"""The extension tags of the result format: one for each type that MessagePack does not support.

Tags are permanent: add new ones, never reuse one. A reader that finds an unknown tag raises `UnknownCodec`.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import struct
import sys
import uuid
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import ormsgpack

from onceward.errors import ResultCorrupt

if TYPE_CHECKING:
    from pathlib import PurePath
    from zoneinfo import ZoneInfo

# ormsgpack converts nothing implicitly: everything except plain JSON types is passed to our hook.
EXACT: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)


class Tag(enum.IntEnum):
    """The content type of an extension."""

    MAP = 1  # dict with keys other than str
    TUPLE = 2
    SET = 3
    FROZENSET = 4
    BIG_INT = 5
    TEXT = 6  # str with lone surrogates, which UTF-8 cannot encode
    BYTEARRAY = 7
    COMPLEX = 8
    DATETIME = 9
    DATE = 10
    TIME = 11
    TIMEDELTA = 12
    TIMEZONE = 13
    ZONEINFO = 14
    PYDANTIC_ZONE = 15
    UUID = 16
    DECIMAL = 17
    FRACTION = 18
    PATH = 19
    ADDRESS = 20
    DEQUE = 21
    ORDERED_DICT = 22
    COUNTER = 23
    RANGE = 24
    # 25 was a reference to a frame of a large result, in a format that is not read any more.
    OBJECT = 32  # an instance of a declared class


class NotStored:
    """Replaces a result that cannot be stored. `reason` explains why; it is logged and added to the note."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Unstorable(Exception):
    """The value cannot be stored and restored exactly. The message says why, and where in the result."""

    def __init__(self, reason: str, public_reason: str = "") -> None:
        """`public_reason` replaces a `reason` that may quote payload in records and logs."""
        super().__init__(reason)
        self.reason = reason
        self.public_reason = public_reason or reason
        self.path = ""
        self.public_path = ""

    def inside(self, step: str, public: str | None = None) -> Unstorable:
        """Prepend a step to the path, and return the error. In `public_path`, `public` replaces a step with payload."""
        self.path = step + self.path
        self.public_path = (public or step) + self.public_path
        return self

    @property
    def public(self) -> str:
        """The message for records and logs: without keys of dicts and names of attributes, which may be payload."""
        return f"result{self.public_path}: {self.public_reason}"

    def __str__(self) -> str:
        return f"result{self.path}: {self.reason}"


# The index in these tuples is part of the format.
_PATHS: Final = ("PurePosixPath", "PureWindowsPath", "PosixPath", "WindowsPath")
_ADDRESSES: Final = (
    "IPv4Address",
    "IPv6Address",
    "IPv4Network",
    "IPv6Network",
    "IPv4Interface",
    "IPv6Interface",
)


def pack(value: Any) -> bytes:
    return ormsgpack.packb(value, option=EXACT)


def is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def int_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _path(value: PurePath) -> bytes:
    return bytes((_PATHS.index(type(value).__name__),)) + str(value).encode("utf-8", "surrogatepass")


def _build_path(data: bytes) -> Any:
    return getattr(import_module("pathlib"), _PATHS[data[0]])(data[1:].decode("utf-8", "surrogatepass"))


def _address(value: Any) -> bytes:
    return bytes((_ADDRESSES.index(type(value).__name__),)) + str(value).encode()


def _build_address(data: bytes) -> Any:
    return getattr(import_module("ipaddress"), _ADDRESSES[data[0]])(data[1:].decode())


def _build_fraction(data: bytes) -> Any:
    """Parse two integers. `Fraction(text)` would also accept `1e99999999`, which takes hours."""
    return import_module("fractions").Fraction(*map(int, data.split(b"/", 1)))


def _timezone(zone: dt.timezone) -> bytes:
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # used by copy and pickle
    return pack([offset.days, offset.seconds, offset.microseconds, *name])


def _build_timezone(data: bytes) -> dt.timezone:
    days, seconds, microseconds, *name = ormsgpack.unpackb(data)
    return dt.timezone(dt.timedelta(days, seconds, microseconds), *name)


def _zone_key(zone: ZoneInfo) -> bytes:
    if zone.key is None:
        raise Unstorable("a ZoneInfo that was read from a file has no name by which it can be restored")
    return zone.key.encode()


def _build_pydantic_zone(data: bytes) -> dt.tzinfo:
    core = sys.modules.get("pydantic_core")
    if core is None:
        raise ResultCorrupt("the stored result has a time zone of pydantic", hint="import pydantic before reading it")
    zone: dt.tzinfo = core.TzInfo(int.from_bytes(data, "big", signed=True))
    return zone


_COMPLEX: Final = struct.Struct(">dd")
_DURATION: Final = struct.Struct(">iIi")

# Types that are encoded as bytes.
LEAVES: Final[dict[type, tuple[Tag, Callable[[Any], bytes]]]] = {
    bytearray: (Tag.BYTEARRAY, bytes),
    complex: (Tag.COMPLEX, lambda value: _COMPLEX.pack(value.real, value.imag)),
    dt.date: (Tag.DATE, lambda value: value.isoformat().encode()),
    dt.timedelta: (Tag.TIMEDELTA, lambda value: _DURATION.pack(value.days, value.seconds, value.microseconds)),
    dt.timezone: (Tag.TIMEZONE, _timezone),
    uuid.UUID: (Tag.UUID, lambda value: value.bytes),
    decimal.Decimal: (Tag.DECIMAL, lambda value: str(value).encode()),
}
# The same for types of modules that most programs never import, by module and name. A value implies an import.
RARE: Final[dict[tuple[str, str], tuple[Tag, Callable[[Any], bytes]]]] = {
    ("zoneinfo", "ZoneInfo"): (Tag.ZONEINFO, _zone_key),
    ("fractions", "Fraction"): (Tag.FRACTION, lambda value: str(value).encode()),
    **{("ipaddress", name): (Tag.ADDRESS, _address) for name in _ADDRESSES},
    **{("pathlib", name): (Tag.PATH, _path) for name in _PATHS},
    **{("pathlib._local", name): (Tag.PATH, _path) for name in _PATHS},  # where Python 3.13 defines them
}


def leaf_of(kind: type) -> tuple[Tag, Callable[[Any], bytes]] | None:
    """Return the tag and the encoder for values of exactly this type."""
    leaf = LEAVES.get(kind)
    if leaf is None and (kind.__module__, kind.__qualname__) in RARE:
        name = (kind.__module__, kind.__qualname__)
        if getattr(sys.modules.get(name[0]), name[1], None) is kind:  # not another class with the same name
            leaf = LEAVES[kind] = RARE[name]
    return leaf


BUILDERS: Final[dict[int, Callable[[bytes], Any]]] = {
    Tag.BIG_INT: lambda data: int.from_bytes(data, "big", signed=True),
    Tag.TEXT: lambda data: data.decode("utf-8", "surrogatepass"),
    Tag.BYTEARRAY: bytearray,
    Tag.COMPLEX: lambda data: complex(*_COMPLEX.unpack(data)),
    Tag.DATE: lambda data: dt.date.fromisoformat(data.decode()),
    Tag.TIMEDELTA: lambda data: dt.timedelta(*_DURATION.unpack(data)),
    Tag.TIMEZONE: _build_timezone,
    Tag.ZONEINFO: lambda data: import_module("zoneinfo").ZoneInfo(data.decode()),
    Tag.PYDANTIC_ZONE: _build_pydantic_zone,
    Tag.UUID: lambda data: uuid.UUID(bytes=data),
    Tag.DECIMAL: lambda data: decimal.Decimal(data.decode()),
    Tag.FRACTION: _build_fraction,
    Tag.PATH: _build_path,
    Tag.ADDRESS: _build_address,
}
