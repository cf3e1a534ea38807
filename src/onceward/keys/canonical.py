"""One value, one sequence of bytes: on every machine, in every process, under every Python.

Two values have the same encoding only if they have the same type and the same content:

| these differ                                         | these are the same                                     |
|------------------------------------------------------|--------------------------------------------------------|
| `1`, `1.0`, `True`, `"1"`, `b"1"`, `Decimal("1")`    | dicts with the same entries in another order           |
| `0.0` and `-0.0`                                     | sets, and `set` and `frozenset`, with the same members |
| `Decimal("1")` and `Decimal("1.0")`: digits count    | `bytes`, `bytearray`, contiguous `memoryview`          |
| `{1: x}` and `{"1": x}`                              | one instant (aware datetime) in two time zones         |
| tuple and list; naive and aware `time`               | paths of one flavour, pure or not                      |
| a UUID, a path, a date and their text                | objects whose class declares its fields in other order |
| an enum member and its value; a subclass and its base| `time` with and without `fold`                         |
| objects of two classes, whatever their fields        |                                                        |

Classes count by module and qualified name, so moving or renaming one changes the encoding (and a class of the script
that is run is called `__main__`). A dataclass, msgspec, attrs, pydantic or named-tuple object is its class and all
its declared fields; a subclass of `str`, `int`, `dict`, ... is its class and its plain value, and attributes that
it adds do not count. Strings are not normalised. A memoryview is its raw bytes, in the machine's own byte order.

Refused with `InvalidKey`, which names the place inside the value: NaN and infinities, lone surrogates, naive
datetimes (no instant), integers over 4,096 bits, nesting over 100 levels (plain data: about 250) and cycles, and
whatever has no declared content (functions, plain objects, generators, modules).

Byte 0 is the version of the encoder, byte 1 says which of two encodings follows. Plain data, all that JSON knows
plus bytes, takes the fast one (MessagePack with sorted keys); everything else takes the tagged one of `tagged.py`.
Which one is a property of the value, so that one value never has two encodings.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import ormsgpack

from onceward.errors import InvalidKey

from .headers import array, binary, mapping, text
from .pace import Pause, current_pause, go_on
from .runs import LIGHT, PLAIN, runs, weigh
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

# A 64-bit float whose exponent is all ones is a NaN or an infinity. The same bytes may also occur inside bytes; such
# a value takes the tagged path too, which looks at the value itself.
_perhaps_not_finite = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]").search

_packb = ormsgpack.packb
_SEAM: Final = 2  # bytes less than the pattern has: so much of it may be in the piece before
_SEARCHED_AT_ONCE: Final = 256 * 1024
_COPIED_AT_ONCE: Final = 256 * 1024

_CONTAINERS: Final = frozenset((list, dict))
_PACKED: Final = PLAIN | {bytearray, memoryview, ormsgpack.Ext}  # all that is packed without asking `_not_plain`

_HINT: Final = "give a key= made of plain values, exclude this part, or make it a dataclass"


def _not_plain(value: object) -> object:
    raise TypeError(type(value))


def canonical(value: object, root: str = "value") -> bytes:
    """The canonical encoding of `value`. `root` is how error messages call the value itself."""
    if current_pause() is not None:
        return _in_pieces(value, root)
    try:
        packed = _packb(value, _not_plain, _OPTIONS)
    except TypeError:
        return _TAGGED + _tagged(value, root)
    if _perhaps_not_finite(packed) is not None:
        return _TAGGED + _tagged(value, root)
    if len(packed) > MAX_BYTES:
        raise InvalidKey(_too_large(root))
    return _FAST + packed


TEXT_STARTS: Final = _FAST
text_goes_on: Final = _packb
"""The same in two parts, of a printable text of some hundred characters: there is nothing about it to be found out."""


def canonical_all(values: Sequence[object]) -> list[bytes]:
    """The canonical encodings of many values: in fewer steps than one by one, if they are plain and small."""
    if current_pause() is None:
        try:
            packed = [_packb(value, _not_plain, _OPTIONS) for value in values]
        except TypeError:
            packed = []
        joined = b"".join(packed)
        if packed and len(joined) <= _SEARCHED_AT_ONCE and _perhaps_not_finite(joined) is None:
            return [_FAST + one for one in packed]
    return [canonical(value) for value in values]


def digest(value: object, *, root: str = "value") -> bytes:
    """SHA-256 of the canonical encoding."""
    return hashlib.sha256(canonical(value, root=root)).digest()


class _Changed(Exception):
    """Somebody else has changed a list: what it said of itself is not true any more."""


def _in_pieces(value: object, root: str) -> bytes:
    """The same bytes; no call into C takes long, and what is joined is copied while other threads may run."""
    found, size, seam = [_FAST], 0, b""
    pause = current_pause() or go_on
    try:
        for piece in pieces(value):
            size += len(piece)
            if size > MAX_BYTES:
                raise InvalidKey(_too_large(root))
            found.append(piece)
            pause()
            if _perhaps_not_finite(seam + piece[:_SEAM]) or _not_finite_in(piece, pause):
                return b"".join((_TAGGED, _tagged(value, root)))
            seam = (seam + piece[-_SEAM:])[-_SEAM:]
    except TypeError:
        return b"".join((_TAGGED, _tagged(value, root)))
    except _Changed:
        raise InvalidKey(f"{root or 'arguments'}: changed while it was hashed", hint="pass a copy") from None
    return b"".join(found)


def pieces(value: Any, around: tuple[int, ...] = ()) -> Iterator[bytes]:
    """What packs `value`, piece by piece. `TypeError` if it is not plain. `around` are the ids of what it is in."""
    kind, depth = type(value), len(around)
    if kind in _CUT and len(value) > LIGHT:
        yield from _CUT[kind](value)
        return
    if kind not in _CONTAINERS or weigh(value, _PACKED, depth) <= LIGHT:
        yield _packb(value, _not_plain, _OPTIONS)
        return
    if id(value) in around:
        raise TypeError("it contains itself")
    around = (*around, id(value))
    head = array if kind is list else mapping
    members = len(value)
    yield head(members)
    for run, light in runs(value, _PACKED, depth + 1, ordered=True):
        members -= len(run)
        if light:
            yield _packb(run, _not_plain, _OPTIONS)[len(head(len(run))) :]
        elif kind is list:
            yield from pieces(run[0], around)
        else:
            for key, held in run.items():
                yield _packb(key, _not_plain, _OPTIONS)
                yield from pieces(held, around)
    if members:
        raise _Changed


def _of_bytes(value: bytes) -> Iterator[bytes]:
    yield binary(len(value))
    yield value  # not even copied


def _of_bytearray(value: bytearray) -> Iterator[bytes]:
    yield binary(len(value))
    with memoryview(value) as view:  # nobody changes its length meanwhile
        for start in range(0, len(view), _COPIED_AT_ONCE):
            yield bytes(view[start : start + _COPIED_AT_ONCE])


def _of_text(value: str) -> Iterator[bytes]:
    pause = current_pause() or go_on
    encoded = []
    for start in range(0, len(value), _COPIED_AT_ONCE):
        try:
            encoded.append(value[start : start + _COPIED_AT_ONCE].encode())
        except UnicodeEncodeError:
            raise TypeError("a lone surrogate") from None
        pause()
    yield text(sum(map(len, encoded)))
    yield from encoded


# Which a packer would copy in one call, however long they are.
_CUT: Final[dict[type, Callable[[Any], Iterator[bytes]]]] = {
    bytes: _of_bytes,
    bytearray: _of_bytearray,
    str: _of_text,
}


def _not_finite_in(piece: bytes, pause: Pause) -> bool:
    for start in range(0, len(piece), _SEARCHED_AT_ONCE):
        if _perhaps_not_finite(piece, start, start + _SEARCHED_AT_ONCE + _SEAM):
            return True
        pause()
    return False


def _tagged(value: object, root: str) -> bytes:
    try:
        return tagged(value)
    except CannotEncode as refused:
        place = refused.place(root) or "arguments"
        raise InvalidKey(f"{place}: {refused.reason}", hint=refused.hint or _HINT) from None
    except RecursionError:  # only when the caller's own stack is nearly used up
        raise InvalidKey(f"{root or 'arguments'}: nested too deep for what is left of the stack", hint=_HINT) from None


def _too_large(root: str) -> str:
    return f"{root or 'arguments'}: larger than {MAX_BYTES >> 20} MiB; hash the content instead (content_key)"


__all__ = [
    "ENCODER_VERSION",
    "MAX_BYTES",
    "MAX_DEPTH",
    "TEXT_STARTS",
    "canonical",
    "canonical_all",
    "digest",
    "text_goes_on",
]
