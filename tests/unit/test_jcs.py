from __future__ import annotations

import json
import math
import random
import shutil
import struct
import subprocess
import time

import pytest

from onceward.errors import InvalidKey
from onceward.keys.jcs import parse_json_strict, rfc8785

# Bits of the double and what ECMAScript writes: the table in appendix B of RFC 8785.
NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


def double(bits: str) -> float:
    number: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return number


@pytest.mark.parametrize(("bits", "text"), NUMBERS.items())
def test_numbers_are_written_as_ecmascript_writes_them(bits: str, text: str) -> None:
    assert rfc8785(double(bits)).decode() == text


def test_numbers_agree_with_a_javascript_engine() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; the table above holds without it")
    dice = random.Random(8785)
    drawn = [double(f"{dice.getrandbits(64):016x}") for _ in range(5000)]
    drawn += [dice.randrange(10**6) / 10 ** dice.randrange(12) for _ in range(5000)]
    numbers = [number for number in drawn if math.isfinite(number)]
    program = "console.log(JSON.stringify(JSON.parse(require('fs').readFileSync(0, 'utf8')).map(String)))"
    child = subprocess.run([node, "-e", program], input=json.dumps(numbers), text=True, capture_output=True, check=True)
    assert [rfc8785(number).decode() for number in numbers] == json.loads(child.stdout)


def test_the_sample_of_the_rfc() -> None:
    sample = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '\u20ac$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    assert rfc8785(sample).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_names_are_sorted_by_utf16_code_units() -> None:
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    written = json.loads(rfc8785(dict.fromkeys(names, 0)))
    assert list(written) == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_one_and_one_point_zero_are_one_number_in_json() -> None:
    assert rfc8785([1, True]) == rfc8785([1.0, True]) == b"[1,true]"


@pytest.mark.fault("F10", "F3", "F16")
@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, 2**53, -(2**53), 10**100, "\ud800", {"\ud800": 1}, {1: "x"}, (1,), b"x", {1}, object()],
)
def test_what_json_cannot_say_alike_everywhere_is_refused(value: object) -> None:
    with pytest.raises(InvalidKey):
        rfc8785([value])


@pytest.mark.fault("F17")
def test_cycles_are_refused() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(InvalidKey, match="levels deep"):
        rfc8785(cycle)


@pytest.mark.fault("F15")
@pytest.mark.parametrize("text", ['{"a":1,"a":1}', '[{"x":{"a":1,"\\u0061":2}}]'])
def test_a_member_that_occurs_twice_is_refused(text: str) -> None:
    with pytest.raises(InvalidKey, match="'a' occurs twice"):
        parse_json_strict(text.encode())


@pytest.mark.fault("F10")
@pytest.mark.parametrize(
    "data",
    [b"NaN", b"[Infinity]", b"-Infinity", b"1e999", b"{", b"", b"\xff", b'{"a":1}x', b"1" * 5000, b"\xef\xbb\xbf1"],
)
def test_what_readers_understand_differently_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidKey):
        parse_json_strict(data)


@pytest.mark.fault("F17")
def test_deep_json_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidKey, match="levels deep"):
        parse_json_strict(b"[" * 100_000 + b"]" * 100_000)
    assert parse_json_strict(b'{"a":"[[[\\"{{{","b":[' + b'"]",' * 500 + b"1]}")
    parse_json_strict(b"[" * 100 + b"]" * 100)


def test_hostile_json_costs_linear_time() -> None:
    started = time.process_time()
    for hostile in (b'"' + b'\\"' * 300_000, b'{"a":1,' * 99 + b'"' * 300_000):
        with pytest.raises(InvalidKey):
            parse_json_strict(hostile)
    assert time.process_time() - started < 5  # quadratic time would be minutes


def test_plain_json_is_read_as_usual() -> None:
    assert parse_json_strict('{"ä":[1,2.5,null,true,"x"]}'.encode()) == {"ä": [1, 2.5, None, True, "x"]}
