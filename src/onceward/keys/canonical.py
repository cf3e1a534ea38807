"""The canonical encoding: a value has the same bytes on every machine, in every process, with every Python version.

Two values have the same encoding only if they have the same type and the same content:

| these differ                                         | these are the same                                     |
|------------------------------------------------------|--------------------------------------------------------|
| `1`, `1.0`, `True`, `"1"`, `b"1"`, `Decimal("1")`    | dicts with the same entries in another order           |
| `0.0` and `-0.0`                                     | sets, and `set` and `frozenset`, with the same members |
| `Decimal("1")` and `Decimal("1.0")` (digits count)   | `bytes`, `bytearray`, contiguous `memoryview`          |
| `{1: x}` and `{"1": x}`                              | one instant (aware datetime) in two time zones         |
| tuple and list; naive and aware `time`               | paths of one flavour, pure or not                      |
| a UUID, a path, a date and their text                | objects whose class declares its fields in other order |
| an enum member and its value; a subclass and its base| `time` with and without `fold`                         |
| objects of two classes, whatever their fields        |                                                        |

Classes are identified by module and qualified name, so moving or renaming a class changes the encoding. (A class in the
script that is run belongs to `__main__`.) A dataclass, msgspec, attrs, pydantic or named-tuple object is encoded as its
class and all its declared fields. A subclass of `str`, `int`, `dict`, ... is encoded as its class and its plain value;
attributes that it adds are ignored. Strings are not normalised. A memoryview is encoded as its raw bytes, in the
machine's byte order.

These raise `InvalidKey`, which names the path inside the value: NaN and infinities, lone surrogates, naive datetimes
(they are ambiguous), integers over 4,096 bits, nesting over 100 levels (plain data: about 250), cycles, and objects
without declared content (functions, plain objects, generators, modules).

Byte 0 is the version of the encoder, byte 1 says which of two encodings follows. Plain data (JSON types and bytes) uses
the fast one, MessagePack with sorted keys. Everything else uses the tagged one of `tagged.py`. The value alone decides
which, so a value never has two encodings.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import ormsgpack

from onceward.errors import InvalidKey

from .tagged import MAX_BYTES, MAX_DEPTH, CannotEncode, tagged

ENCODER_VERSION: Final = 1
_FAST: Final = bytes((ENCODER_VERSION, ord("f")))
_TAGGED: Final = bytes((ENCODER_VERSION, ord("t")))

_OPTIONS: Final = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
    | ormsgpack.OPT_SORT_KEYS
)

# A 64-bit float whose exponent is all ones is NaN or infinity. The same bytes may also occur inside a bytes value. Such
# a value takes the tagged path too, which checks the value itself.
_perhaps_not_finite = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]").search

_packb = ormsgpack.packb

_HINT: Final = "pass a key= made of plain values, exclude this part, or make it a dataclass"


def _not_plain(value: object) -> object:
    raise TypeError(type(value))


def canonical(value: object, root: str = "value") -> bytes:
    """Return the canonical encoding of `value`. Error messages call the value `root`."""
    try:
        packed = _packb(value, _not_plain, _OPTIONS)
    except TypeError:
        return _TAGGED + _tagged(value, root)
    if _perhaps_not_finite(packed) is not None:
        return _TAGGED + _tagged(value, root)
    if len(packed) > MAX_BYTES:
        raise InvalidKey(
            f"{root or 'arguments'}: larger than {MAX_BYTES >> 20} MiB; hash the content instead (content_key)"
        )
    return _FAST + packed


TEXT_PREFIX: Final = _FAST
pack_text: Final = _packb
"""Together the encoding of a short printable text, which needs no checks: the prefix, then `pack_text(text)`."""


def canonical_all(values: Sequence[object]) -> list[bytes]:
    """Return the canonical encodings of many values. Plain values are checked together, which is faster."""
    try:
        packed = [_packb(value, _not_plain, _OPTIONS) for value in values]
    except TypeError:
        packed = []
    joined = b"".join(packed)
    if packed and len(joined) <= MAX_BYTES and _perhaps_not_finite(joined) is None:
        return [_FAST + one for one in packed]
    return [canonical(value) for value in values]


def digest(value: object, *, root: str = "value") -> bytes:
    """Return the SHA-256 of the canonical encoding."""
    return hashlib.sha256(canonical(value, root=root)).digest()


def _tagged(value: object, root: str) -> bytes:
    try:
        return tagged(value)
    except CannotEncode as error:
        path = error.path(root) or "arguments"
        raise InvalidKey(f"{path}: {error.reason}", hint=error.hint or _HINT) from None
    except RecursionError:  # only if the caller's own stack is nearly exhausted
        raise InvalidKey(f"{root or 'arguments'}: nested too deeply for the remaining stack", hint=_HINT) from None


__all__ = [
    "ENCODER_VERSION",
    "MAX_BYTES",
    "MAX_DEPTH",
    "TEXT_PREFIX",
    "canonical",
    "canonical_all",
    "digest",
    "pack_text",
]
