"""Large results are stored in one piece, like small ones, and read back with their types."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import tracemalloc
import zlib
from decimal import Decimal
from typing import Any
from unittest import mock

import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.errors import ResultCorrupt, UnknownCodec
from onceward.results.codec import COMPRESSED, MAX_UNPACKED, PLAIN, Codec
from onceward.results.extensions import EXACT
from onceward.results.plain import is_plain
from onceward.results.result_type import ResultType, Unstorable
from onceward.results.writer import Writer
from tests.unit.result_values import ANYTHING, exactly

RECORD = bytes(32)
MIB = 1 << 20

leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
plain = st.recursive(
    leaves, lambda each: st.lists(each) | st.dictionaries(st.text(max_size=5), each, max_size=20), max_leaves=25
)


def compressed(body: bytes, declared: int) -> bytes:
    """Return a stored result with a valid checksum, as a forger would write it."""
    content = declared.to_bytes(4, "big") + body
    head = bytes((1, 1, COMPRESSED))
    return head + zlib.crc32(content, zlib.crc32(head)).to_bytes(4, "big") + content


# ── the encoding ──


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"id": x, "name": f"n{x}"} for x in range(5_000)], "bc4d8b01c8017a55"),
        ({"rows": [(x, Decimal(x)) for x in range(5_000)]}, "adc25fd59f95180f"),
    ],
)
def test_the_bytes_of_large_results_have_not_changed(value: Any, expected: str) -> None:
    """Otherwise one result, completed twice by two versions, would look like two results."""
    assert hashlib.sha256(ANYTHING.encode(value)).hexdigest()[:16] == expected


def test_plain_data_of_any_size_is_stored_as_one_messagepack_value() -> None:
    for value in ([{"id": x, "raw": b"x"} for x in range(20_000)], "x" * 100_000, bytes(100_000)):
        assert ANYTHING.encode(value) == ormsgpack.packb(value)


@settings(max_examples=100, deadline=None)
@given(plain)
def test_the_writer_writes_plain_data_as_the_fast_path_does(value: Any) -> None:
    assert is_plain(value)
    assert Writer({}).pack(value) == ormsgpack.packb(value, option=EXACT)


@pytest.mark.parametrize(
    "value",
    [
        [{"id": x, "name": f"n{x}", "price": x / 4} for x in range(200, 300)],
        {"name": "Ärger", "at": 1_700_000_000, "raw": b"bytes", "in": [{"raw": b""}]},
        "Åse",
        [[b"bytes"]],
    ],
)
def test_plain_results_take_the_fast_path_whatever_their_bytes_look_like(value: Any) -> None:
    with mock.patch("onceward.results.result_type.Writer", side_effect=AssertionError):
        assert ANYTHING.decode(ANYTHING.encode(value)) == value


@pytest.mark.parametrize("foreign", [bytearray(b"x"), memoryview(b"x"), ormsgpack.Ext(1, b"\x90")])
@pytest.mark.parametrize("among", [lambda x: x, lambda x: [x], lambda x: [0, {"a": [1, {"b": x}], "c": 2}]])
@pytest.mark.parametrize("size", [1, 40_000])
def test_values_that_the_packer_confuses_with_bytes_or_extensions_never_take_the_fast_path(
    foreign: Any, among: Any, size: int
) -> None:
    value = [*range(size), among(foreign)]
    if isinstance(foreign, bytearray):
        assert exactly(ANYTHING.decode(ANYTHING.encode(value)), value)
        return
    with pytest.raises(Unstorable, match="not a type that can be stored"):
        ANYTHING.encode(value)


def test_large_equal_sets_have_equal_bytes() -> None:
    members = [f"member {x}" for x in range(3_000)]
    encoded = set()
    for seed in range(3):
        random.Random(seed).shuffle(members)
        encoded.add(ANYTHING.encode(set(members)))
        encoded.add(ANYTHING.encode({*members, "x"} - {"x"}))
    assert len(encoded) == 1


@dataclasses.dataclass
class Report:
    title: str
    rows: list[tuple[int, Decimal]]
    by_day: dict[int, list[int]]


def test_instances_with_many_values_are_restored() -> None:
    report = Report("x", [(x, Decimal(x)) for x in range(5_000)], {x: [x] for x in range(5_000)})
    declared = ResultType(list[Report])
    assert declared.decode(declared.encode([report, report])) == [report, report]


def test_the_path_to_an_unstorable_value_is_reported_in_a_large_result() -> None:
    value = {"rows": [Decimal(x) for x in range(20_000)] + [object()]}
    with pytest.raises(
        Unstorable, match=r"result\['rows'\]\[20000\]: builtins:object is not a type that can be stored"
    ):
        ANYTHING.encode(value)


def test_a_large_result_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless += [{"again": endless}] * 100
    with pytest.raises(Unstorable, match="contains itself"):
        ANYTHING.encode(endless)


# ── records of other versions, and hostile ones ──


@pytest.mark.fault("F26")
@pytest.mark.parametrize("data", [b"\xc1", bytes.fromhex("c1010000000000000005940102030400000000000000000003d41900")])
def test_a_result_in_frames_is_an_unknown_codec(data: bytes) -> None:
    """An early version stored large results in frames."""
    head = bytes((1, 1, 0))
    stored = head + zlib.crc32(data, zlib.crc32(head)).to_bytes(4, "big") + data
    with pytest.raises(UnknownCodec, match="in frames, the format of an early version"):
        PLAIN.decode(stored, RECORD)


@pytest.mark.parametrize("declared", [MIB, MIB + 1, 3 * MIB - 1, 3 * MIB + 5])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_a_large_compressed_result_unpacks_to_what_it_declares_or_is_corrupt(declared: int, off: int) -> None:
    content = random.Random(1).randbytes(1000) + bytes(declared - 1005 + off)
    data = compressed(zlib.compress(b"\xc6" + len(content).to_bytes(4, "big") + content), declared)
    if off == 0:
        assert PLAIN.decode(data, RECORD) == content
        return
    with pytest.raises(ResultCorrupt, match="does not decompress to"):
        PLAIN.decode(data, RECORD)


def test_bytes_after_a_large_compressed_result_are_corrupt() -> None:
    content = random.Random(1).randbytes(3 * MIB)
    packed = b"\xc6" + len(content).to_bytes(4, "big") + content
    for more in (b"x", bytes(2 * MIB)):
        with pytest.raises(ResultCorrupt, match="does not decompress to"):
            PLAIN.decode(compressed(zlib.compress(packed, 0) + more, len(packed)), RECORD)


@pytest.mark.finding("N42")
@pytest.mark.fault("F25")
def test_a_small_hostile_record_does_not_expand_to_gigabytes() -> None:
    """A list takes one byte in MessagePack and 80 in memory, and zlib shrinks equal bytes a thousandfold."""
    lists = 30 * MIB
    body = zlib.compress(b"\xdd" + lists.to_bytes(4, "big") + b"\x90" * lists)
    assert len(body) < 31_000
    tracemalloc.start()
    try:
        for declared in (lists + 5, MAX_UNPACKED):
            with pytest.raises(ResultCorrupt):
                PLAIN.decode(compressed(body, declared), RECORD)
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_UNPACKED
    finally:
        tracemalloc.stop()


def test_results_that_are_too_large_to_decompress_safely_are_stored_uncompressed() -> None:
    value = bytes(MAX_UNPACKED)
    codec = Codec(ANYTHING, max_bytes=2 * MAX_UNPACKED)
    data = codec.encode(value, RECORD).data
    assert data is not None
    assert len(data) > MAX_UNPACKED
    assert codec.decode(data, RECORD) == value
