"""Large values are hashed, encoded and decoded in pieces, with no visible difference: the same bytes, the same values.

Here the pieces are made so small that small values have many. `test_no_call_takes_long.py` checks that
large ones are really cut.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import random
import struct
import tracemalloc
import zlib
from decimal import Decimal
from typing import Any
from unittest import mock

import ormsgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceward.errors import InvalidKey, ResultCorrupt, ResultError
from onceward.keys import canonical as canonical_module
from onceward.keys.canonical import canonical, pieces
from onceward.keys.runs import LIGHT, in_order, is_plain, weigh
from onceward.results.codec import COMPRESSED, PLAIN, Codec
from onceward.results.extensions import EXACT, Tag, int_bytes, pack
from onceward.results.frames import ENTRIES, ITEMS, MARK, VALUE
from onceward.results.result_type import ResultType, Unstorable
from onceward.results.writer import Writer
from tests.unit.piece_sizes import beside_others, pieces_of
from tests.unit.result_values import exactly, values
from tests.unit.test_canonical_properties import rich

RECORD = bytes(32)
ANYTHING = ResultType()
SORTED = canonical_module._OPTIONS

leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
plain = st.recursive(
    leaves, lambda each: st.lists(each) | st.dictionaries(st.text(max_size=5), each, max_size=20), max_leaves=25
)
limits = st.integers(1, 60)


def encoding(value: Any) -> bytes | str:
    """Return the encoding of an argument, or its refusal."""
    try:
        return canonical(value)
    except InvalidKey as error:
        return str(error)


def nested(levels: int) -> Any:
    value: Any = [1, 2, 3]
    for level in range(levels - 1):
        value = [value, level] if level % 2 else {"in": value, "level": level}
    return value


# ── keys and arguments ──


@pytest.mark.mission("B1")
@settings(max_examples=150, deadline=None)
@given(plain, limits)
@example([0] * 70_000, 60)
@example({str(x): x for x in range(70_000)}, 60)
@example([bytes(70_000), bytes(300), bytes(20)], 10)
def test_pieces_of_any_size_join_to_what_one_call_packs(value: Any, light: int) -> None:
    with pieces_of(light):
        assert b"".join(pieces(value)) == ormsgpack.packb(value, option=SORTED)


@pytest.mark.mission("B1")
@settings(max_examples=150, deadline=None)
@given(plain | rich, limits)
@example([1.5, float("nan")], 1)
@example([2**63, float("inf"), "x"], 2)
@example({1: 2, "a": [b"x"]}, 1)
@example([bytearray(b"abc" * 30), memoryview(b"defghi" * 30)], 1)
@example("…" * 300 + "\ud800", 7)
@example(["…" * 300, "x" * 70_000, "é" * 20], 7)
def test_a_key_is_the_same_with_or_without_pauses(value: Any, light: int) -> None:
    alone = encoding(value)
    with pieces_of(light):
        assert beside_others(encoding, value) == alone


@pytest.mark.parametrize("light", [1, 2, 3, 7, LIGHT])
def test_what_only_looks_like_infinity_across_two_pieces_still_decides_the_encoding(light: int) -> None:
    """The bytes of an infinity inside of bytes make the tagged encoding, wherever a piece may end."""
    lookalike = b"\xcb\x7f\xf0"
    for before in range(10):
        value = [b"." * before + lookalike, "…", b"." * before]
        assert canonical(value)[1:2] == b"t"
        with pieces_of(light):
            assert beside_others(canonical, value) == canonical(value)


@pytest.mark.parametrize("light", [1, 2, 3, LIGHT])
@pytest.mark.parametrize("numbers", [[203, -1, -1], [0, 203, -1, -16, 5], [203, -1], [203, 127, -1]])
def test_numbers_that_together_look_like_infinity_still_decide_the_encoding(numbers: list[int], light: int) -> None:
    """cc cb, ff, ff: the look-alike begins in one piece and ends in another."""
    with pieces_of(light):
        assert beside_others(canonical, numbers) == canonical(numbers)


@pytest.mark.parametrize("levels", [254, 255, 256])
@pytest.mark.parametrize("light", [1, 10, LIGHT])
def test_data_is_plain_up_to_the_same_depth(levels: int, light: int) -> None:
    value = nested(levels)
    with pieces_of(light):
        assert beside_others(encoding, value) == encoding(value)


def test_what_contains_itself_is_refused_in_pieces_too() -> None:
    endless: list[Any] = []
    endless += [{"again": endless}] * 100
    with pytest.raises(InvalidKey, match="contains itself"):
        beside_others(canonical, endless)
    with pytest.raises(Unstorable, match="contains itself"):
        ANYTHING.pieces(endless)


def test_what_is_too_large_for_a_key_is_given_up_before_it_is_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical_module, "MAX_BYTES", 100_000)
    unfolding: list[Any] = ["x" * 100]
    for _ in range(40):  # of 2**40 texts
        unfolding = [unfolding, unfolding]
    with pytest.raises(InvalidKey, match="larger than"):
        beside_others(canonical, unfolding)


@given(st.lists(st.text(), unique=True) | st.lists(st.binary(), unique=True), limits)
def test_sorting_in_steps_is_sorting(keys: list[Any], light: int) -> None:
    with pieces_of(light):
        assert in_order(keys) == sorted(keys)


def test_many_are_sorted_and_collected_with_pauses() -> None:
    many = [str(x) for x in range(20_000)]
    pauses: list[None] = []
    assert beside_others(in_order, many, pause=lambda: pauses.append(None)) == sorted(many)
    assert len(pauses) >= 2 * 20_000 // 2_048
    data = ANYTHING.encode(dict.fromkeys(range(20_000)))
    pauses.clear()
    with mock.patch("onceward.results.frames.current_pause", return_value=None):  # but for those between two frames
        beside_others(ANYTHING.decode, data, pause=lambda: pauses.append(None))
    assert len(pauses) >= 2 * 20_000 // 4_096


def test_a_list_that_is_shortened_meanwhile_is_refused() -> None:
    items = [*range(100_000)]
    with pytest.raises(InvalidKey, match="changed while it was hashed"):
        beside_others(canonical, {"items": items}, pause=lambda: items.__delitem__(-1))


# ── results ──


@pytest.mark.parametrize("change", [lambda items: items.append(1), lambda items: items.pop()])
def test_a_list_that_is_changed_meanwhile_is_stored_as_it_was_read(change: Any) -> None:
    """Never as something that cannot be read, and never without end."""
    items = [*range(100_000)]
    stored = ANYTHING.decode(b"".join(beside_others(ANYTHING.pieces, items, pause=lambda: change(items))))
    assert 99_000 < len(stored) <= 100_000
    assert stored == [*range(len(stored))]


@settings(max_examples=150, deadline=None)
@given(plain)
def test_the_weight_is_never_more_than_the_packed_bytes(value: Any) -> None:
    """So a short packed value is light, and needs no further check."""
    assert weigh(value) <= len(ormsgpack.packb(value, option=EXACT))


@pytest.mark.rival(14)
@settings(max_examples=150, deadline=None)
@given(plain | values, limits)
@example([list(range(50)), {"a": list(range(50))}, bytes(100)], 20)
@example(collections.OrderedDict((x, str(x)) for x in range(50)), 10)
@example(collections.deque(range(50), maxlen=60), 10)
@example({x: (x, [x]) for x in range(50)}, 10)
@example({(x, "x" * x) for x in range(50)}, 10)
@example([bytes(30), (bytes(30), {"x": bytes(30)})], 10)
def test_results_in_frames_of_any_size_come_back_with_their_types(value: Any, light: int) -> None:
    with pieces_of(light):
        data = ANYTHING.encode(value)
        assert b"".join(ANYTHING.pieces(value)) == data, "equal results are equal bytes, whichever path encodes them"
        assert b"".join(beside_others(ANYTHING.pieces, value)) == data
        assert exactly(ANYTHING.decode(data), value)
        assert exactly(ANYTHING.decode(memoryview(data)), value)
        assert exactly(beside_others(ANYTHING.decode, data), value)
    assert exactly(ANYTHING.decode(data), value), "a reader does not need the writer's sizes"


@settings(max_examples=100, deadline=None)
@given(plain)
def test_the_careful_way_writes_plain_data_as_the_fast_way_does(value: Any) -> None:
    assert is_plain(value)
    assert Writer({}).pack(value) == [ormsgpack.packb(value, option=EXACT)]


@pytest.mark.parametrize(
    "value",
    [
        [{"id": x, "name": f"n{x}", "price": x / 4} for x in range(200, 300)],
        {"name": "Ärger", "at": 1_700_000_000, "raw": b"bytes", "in": [{"raw": b""}]},
        "Åse",
        [[b"bytes"]],
    ],
)
def test_plain_results_take_the_fast_way_whatever_their_bytes_look_like(value: Any) -> None:
    with mock.patch("onceward.results.result_type.Writer", side_effect=AssertionError):
        assert ANYTHING.decode(ANYTHING.encode(value)) == value


@pytest.mark.parametrize("foreign", [bytearray(b"x"), memoryview(b"x"), ormsgpack.Ext(1, b"\x90")])
@pytest.mark.parametrize("among", [lambda x: x, lambda x: [x], lambda x: [0, {"a": [1, {"b": x}], "c": 2}]])
@pytest.mark.parametrize("size", [1, 40_000])
def test_what_the_packer_would_take_for_something_else_never_takes_the_fast_way(
    foreign: Any, among: Any, size: int
) -> None:
    value = [*range(size), among(foreign)]
    if isinstance(foreign, bytearray):
        assert exactly(ANYTHING.decode(ANYTHING.encode(value)), value)
        assert exactly(ANYTHING.decode(b"".join(ANYTHING.pieces(value))), value)
        return
    for encode in (ANYTHING.encode, ANYTHING.pieces):
        with pytest.raises(Unstorable, match="not a type that can be stored"):
            encode(value)


def test_equal_sets_are_equal_bytes_in_frames_too() -> None:
    members = [f"member {x}" for x in range(3_000)]
    encoded = set()
    for seed in range(3):
        random.Random(seed).shuffle(members)
        encoded.add(ANYTHING.encode(set(members)))
        encoded.add(ANYTHING.encode(set(members) | {"x"} - {"x"}))
    assert len(encoded) == 1
    assert encoded.pop()[:1] == MARK


@dataclasses.dataclass
class Report:
    title: str
    rows: list[tuple[int, Decimal]]
    by_day: dict[int, list[int]]


def test_instances_with_a_lot_in_them_come_back() -> None:
    report = Report("x", [(x, Decimal(x)) for x in range(5_000)], {x: [x] for x in range(5_000)})
    declared = ResultType(list[Report])
    data = declared.encode([report, report])
    assert data[:1] == MARK
    assert declared.decode(data) == [report, report]


def test_the_path_of_an_unstorable_value_is_reported_as_before() -> None:
    value = {"rows": [Decimal(x) for x in range(20_000)] + [object()]}
    with pytest.raises(
        Unstorable, match=r"result\['rows'\]\[20000\]: builtins:object is not a type that can be stored"
    ):
        ANYTHING.encode(value)


def test_only_what_is_large_is_in_frames() -> None:
    """Whatever is small is stored as it always was."""
    assert ANYTHING.encode([0] * (LIGHT - 10)) == ormsgpack.packb([0] * (LIGHT - 10))
    assert ANYTHING.encode([0] * LIGHT)[:1] == MARK
    for leaf in ("x" * 100_000, bytes(100_000)):
        assert ANYTHING.encode(leaf) == ormsgpack.packb(leaf)
    floats = [x / 3 for x in range(LIGHT - 10)]  # many bytes, and yet few values
    assert b"".join(ANYTHING.pieces(floats)) == ANYTHING.encode(floats) == ormsgpack.packb(floats)


def test_large_records_from_before_there_were_frames_still_read() -> None:
    for value in ([{"id": x} for x in range(20_000)], bytes(1_000_000)):
        packed = ormsgpack.packb(value)
        for flags, body in ((0, packed), (COMPRESSED, len(packed).to_bytes(4, "big") + zlib.compress(packed))):
            head = bytes((1, 1, flags))
            assert PLAIN.decode(head + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "big") + body, RECORD) == value


GOLDEN = [
    (
        [[1, 2, 3, 4, 5, 6, 7, 8], b"12345678"],
        (
            "c1010000000000000005940102030401000000000000000493050607010000000000000002910801000000010000000491d4"
            "1900030000000200000008313233343536373801000000010000000491d41902000000000000000003d41901"
        ),
    ),
    (
        {"a": [1, 2, 3, 4, 5, 6, 7], "b": b"12345678", "c": (1, {2: "xxxxxxxx"})},
        (
            "c10100000000000000089701020304050607030000000100000008313233343536373801000000020000000b9202a8787878"
            "787878787802000000030000001783a161d41900a162d41901a163d7029201c70301d41902000000000000000003d41903"
        ),
    ),
]


@pytest.mark.parametrize(("value", "expected"), GOLDEN)
def test_the_format_of_frames_has_not_changed(value: Any, expected: str) -> None:
    with pieces_of(6):
        assert ANYTHING.encode(value).hex() == expected
    assert ANYTHING.decode(bytes.fromhex(expected)) == value, "records of earlier releases must stay readable"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([{"id": x, "name": f"n{x}"} for x in range(5_000)], "144b97036f84c8d7"),
        ({"rows": [(x, Decimal(x)) for x in range(5_000)]}, "8b3c40ba3781279f"),
    ],
)
def test_large_values_are_cut_where_they_always_were(value: Any, expected: str) -> None:
    """Otherwise the same result, completed twice by two releases, would look like two results."""
    assert hashlib.sha256(ANYTHING.encode(value)).hexdigest()[:16] == expected


@pytest.mark.fault("F25", "F26")
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.binary(max_size=3))
def test_invalid_frames_are_reported_as_corrupt_and_nothing_else(place: int, change: bytes) -> None:
    """With a valid checksum, as a forger would write it."""
    with pieces_of(10):
        data = ANYTHING.encode({"a": [*range(30)], "b": [bytes(40), {"c": (1, 2, [3] * 20)}]})
        place %= len(data)
        with contextlib.suppress(ResultError):
            ANYTHING.decode(data[:place] + change + data[place + len(change) :])
        for cut in (data[:place], data + change + b"\0"):
            with pytest.raises(ResultCorrupt):
                ANYTHING.decode(cut)


def part(number: int) -> Any:
    return ormsgpack.Ext(Tag.PART, int_bytes(number))


def forged(*frames: tuple[int, int, Any]) -> bytes:
    """Build frames as a forger would: kind, part, content."""
    packed = [(kind, number, pack(content)) for kind, number, content in frames]
    return MARK + b"".join(struct.pack(">BII", kind, number, len(data)) + data for kind, number, data in packed)


def twice_each(levels: int) -> list[tuple[int, int, Any]]:
    """Each level is twice the one below, which doubles the time that hashing takes."""
    pair = [[ormsgpack.Ext(Tag.TUPLE, pack(part(level)))] * 2 for level in range(levels)]
    return [(ITEMS, 0, [1, 2]), *((ITEMS, level + 1, content) for level, content in enumerate(pair))]


@pytest.mark.fault("F25")
@pytest.mark.parametrize(
    "data",
    [
        forged(*twice_each(60), (VALUE, 0, ormsgpack.Ext(Tag.SET, pack(part(60))))),
        forged((ITEMS, 0, [1]), (VALUE, 0, [part(0), part(0)])),
        forged((ITEMS, 0, [1]), (ITEMS, 0, [part(0)]), (VALUE, 0, part(0))),
        forged((ENTRIES, 0, {"a": 1}), (ENTRIES, 0, {"b": part(0)}), (VALUE, 0, part(0))),
        forged((ITEMS, 0, [1]), (VALUE, 0, part(-1))),
    ],
    ids=["would hash for ages", "shares a part", "contains itself", "contains itself, as a dict", "from behind"],
)
def test_a_part_stands_in_one_place_only(data: bytes) -> None:
    """As it is written. Otherwise a few bytes could make a value too large to hash, or one that contains itself."""
    with pytest.raises(ResultCorrupt):
        ANYTHING.decode(data)


# ── the envelope ──


@settings(max_examples=100, deadline=None)
@given(plain | values, limits, st.sampled_from([None, 0, 50]))
def test_the_envelope_is_the_same_made_in_pieces(value: Any, light: int, compress_from: int | None) -> None:
    codec = Codec(ANYTHING, compress_from=compress_from)
    with pieces_of(light):
        in_pieces = codec.encode(value, RECORD, large=True)
        assert in_pieces == codec.encode(value, RECORD)
        assert in_pieces.digest == codec.encode(value, RECORD).digest
        assert exactly(codec.decode(in_pieces.data or b"", RECORD), value)


@pytest.mark.parametrize("declared", [2**20, 2**20 + 1, 3 * 2**20 - 1, 3 * 2**20 + 5])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_a_large_compressed_result_unpacks_to_what_it_declares_or_is_corrupt(declared: int, off: int) -> None:
    plain = random.Random(1).randbytes(1000) + bytes(declared - 1005 + off)
    packed = b"\xc6" + (len(plain)).to_bytes(4, "big") + plain
    body = declared.to_bytes(4, "big") + zlib.compress(packed)
    head = bytes((1, 1, COMPRESSED))
    data = head + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "big") + body
    if off == 0:
        assert PLAIN.decode(data, RECORD) == plain
        return
    with pytest.raises(ResultCorrupt, match="does not decompress to"):
        PLAIN.decode(data, RECORD)


def test_what_follows_a_large_compressed_result_is_corrupt() -> None:
    plain = random.Random(1).randbytes(3 * 2**20)  # longer than one step, even packed
    packed = b"\xc6" + len(plain).to_bytes(4, "big") + plain
    body = len(packed).to_bytes(4, "big") + zlib.compress(packed, 0)
    for more in (b"x", bytes(2**21)):
        head = bytes((1, 1, COMPRESSED))
        data = head + zlib.crc32(body + more, zlib.crc32(head)).to_bytes(4, "big") + body + more
        with pytest.raises(ResultCorrupt, match="does not decompress to"):
            PLAIN.decode(data, RECORD)


def test_a_large_result_is_copied_once_on_its_way_in_and_once_on_its_way_out() -> None:
    value = bytes(8 << 20)
    codec = Codec(ANYTHING, compress_from=None, max_bytes=16 << 20)

    def most_memory(call: Any) -> float:
        tracemalloc.start()
        try:
            made = call()
            return tracemalloc.get_traced_memory()[1] / len(value) if made is not None else 0
        finally:
            tracemalloc.stop()

    data = codec.encode(value, RECORD, large=True).data
    assert data is not None
    assert 1 <= most_memory(lambda: codec.encode(value, RECORD, large=True)) < 1.5
    assert 1 <= most_memory(lambda: codec.decode(data, RECORD)) < 1.5
    assert codec.decode(data, RECORD) == value
