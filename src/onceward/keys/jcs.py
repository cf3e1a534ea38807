"""JSON that other languages hash to the same bytes: canonical output by RFC 8785, and strict parsing.

Numbers follow ECMAScript, so `1` and `1.0` are equal here, unlike in Onceward's own encoding.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final, NoReturn

from onceward.errors import InvalidKey

MAX_DEPTH: Final = 100
MAX_SAFE_INTEGER: Final = 2**53 - 1  # other languages round larger integers, so two of them may become equal

# ECMAScript writes an exponent for more digits before the point, or more zeros after it.
_PLAIN_DIGITS: Final = 21
_PLAIN_ZEROS: Final = 5

# Strings come first, so that brackets inside them are not counted. Possessive quantifiers and an optional closing quote
# keep hostile input at linear time.
_brackets = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)
_quote = json.JSONEncoder(ensure_ascii=False).encode


def rfc8785(value: object) -> bytes:
    """Return the canonical JSON of `value`, which may contain only str, int, float, bool, None, list and dict."""
    try:
        return _write(value, 0).encode()
    except UnicodeEncodeError:
        raise InvalidKey(
            "a string with a lone surrogate cannot be JSON", hint="decode it with the right encoding"
        ) from None


def parse_json_strict(data: bytes) -> object:
    """Parse UTF-8 JSON. Reject input that parsers may interpret differently (duplicate members, NaN, huge numbers)."""
    _check_depth(data)
    try:
        return json.loads(
            data.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite_float
        )
    except InvalidKey:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidKey(f"invalid JSON: {error}", hint="send well-formed UTF-8 JSON") from error


def _write(value: object, depth: int) -> str:
    if depth > MAX_DEPTH:
        raise InvalidKey(f"JSON nested more than {MAX_DEPTH} levels deep, or containing itself", hint="flatten it")
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is str:
        return _quote(value)
    if type(value) is int:
        return _integer(value)
    if type(value) is float:
        return _number(value)
    if type(value) is list:
        return f"[{','.join([_write(item, depth + 1) for item in value])}]"
    if type(value) is dict:
        names = sorted(value, key=_utf16)
        return f"{{{','.join([f'{_quote(name)}:{_write(value[name], depth + 1)}' for name in names])}}}"
    raise InvalidKey(f"{type(value).__name__} is not a JSON type", hint="convert it, or use Onceward's own encoding")


def _utf16(name: object) -> bytes:
    if type(name) is not str:
        raise InvalidKey(f"the name of a JSON member is {type(name).__name__}, not str", hint="use str names")
    return name.encode("utf-16-be")


def _integer(value: int) -> str:
    if abs(value) > MAX_SAFE_INTEGER:
        raise InvalidKey("an integer beyond 2^53 - 1 is rounded by other languages", hint="send it as a string")
    return str(value)


def _number(value: float) -> str:
    """Format as ECMAScript does: the shortest digits that parse back, without exponent between 1e-7 and 1e21."""
    if not math.isfinite(value):
        raise InvalidKey(f"{value} is not a JSON number", hint="replace it with null")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    return sign + _place_point(digits, point)


def _place_point(digits: str, point: int) -> str:
    """Return `0.digits × 10^point` in the notation that ECMAScript chooses."""
    if len(digits) <= point <= _PLAIN_DIGITS:
        return digits.ljust(point, "0")
    if 0 < point <= _PLAIN_DIGITS:
        return f"{digits[:point]}.{digits[point:]}"
    if -_PLAIN_ZEROS <= point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"


def _check_depth(data: bytes) -> None:
    depth = 0
    for found in _brackets.finditer(data):
        bracket = found[0]
        if bracket in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidKey(f"JSON nested more than {MAX_DEPTH} levels deep", hint="flatten it")
        elif bracket in b"]}":
            depth -= 1


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise InvalidKey(f"the JSON member {name[:60]!r} occurs twice", hint="send each member once")
        members[name] = value
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidKey(f"{name} is not a JSON number", hint="replace it with null")


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidKey(f"the JSON number {text:.40} is out of range", hint="send it as a string")
    return number
