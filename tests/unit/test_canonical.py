from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import zoneinfo
from collections import OrderedDict
from decimal import Decimal, localcontext
from itertools import combinations
from types import SimpleNamespace

import msgspec
import pydantic
import pytest

from onceward.errors import InvalidKey
from onceward.keys import tagged as tagged_module
from onceward.keys.canonical import MAX_DEPTH, canonical, digest
from tests.unit.canonical_cases import (
    CASES,
    Colour,
    Invoice,
    Kind,
    Letter,
    Level,
    Mail,
    Name,
    Order,
    OrderId,
    Parcel,
    Point,
)

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = pathlib.Path(__file__).with_name("golden_canonical.json")


class Opaque:
    pass


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("name", CASES)
def test_an_accidental_change_of_the_format_is_noticed(name: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert canonical(CASES[name]).hex() == golden[name]


def test_every_case_has_an_encoding_of_its_own() -> None:
    assert len({canonical(value) for value in CASES.values()}) == len(CASES)


@pytest.mark.mission("B1")
@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_other_processes_with_other_hash_seeds_agree(seed: str) -> None:
    program = "from tests.unit.canonical_cases import dump; dump()"
    path = os.pathsep.join(entry for entry in (str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")) if entry)
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
    child = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, env=environment, cwd=ROOT)
    assert json.loads(child.stdout) == json.loads(GOLDEN.read_text())


LOOKALIKES: list[list[object]] = [
    [1, 1.0, True, "1", b"1", Decimal(1), Decimal("1.0"), Level.LOW, Colour.RED, OrderId(1)],
    [0, 0.0, -0.0, False, "", b"", None, [], (), {}, set(), Decimal(0), Decimal("-0")],
    [{1: "x"}, {"1": "x"}, {True: "x"}, {1.0: "x"}, {(1,): "x"}, {b"1": "x"}, {Decimal(1): "x"}],
    [[1, 2], (1, 2), {1, 2}, Point(1, 2), {"x": 1, "y": 2}, "[1, 2]", [[1], 2], [[1, 2]], [1, [2]]],
    ["a", Name("a"), Kind.A, b"a", pathlib.PurePosixPath("a"), pathlib.PureWindowsPath("a"), ["a"]],
    [Order(1, []), Invoice(1, []), Parcel(1), Letter(1), Mail(id=1), {"id": 1, "lines": []}, {"id": 1}],
    [CASES["uuid"], str(CASES["uuid"]), 5, (5).to_bytes(16, "big")],
    [dt.date(2024, 1, 1), "2024-01-01", dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.timedelta(19723), 19723],
    [dt.time(12), dt.time(12, tzinfo=dt.UTC), "12:00:00", dt.timedelta(hours=12)],
    [{"a": 1}, OrderedDict(a=1), {"a": 1, "b": None}, [("a", 1)], ("a", 1)],
    [2**53, 2**53 + 1, 2**64, 2**64 + 1, float(2**64), -(2**64)],
    [["a:b", "c"], ["a", "b:c"], ["a", "b", "c"], ["ab:c"]],
    ["e\u0301", "\u00e9", "E\u0301", "e", "e "],
]


@pytest.mark.mission("B1")
@pytest.mark.rival(8)
@pytest.mark.fault("F6", "F7", "F8", "F11", "F12", "F16")
@pytest.mark.parametrize("group", LOOKALIKES, ids=lambda group: repr(group[0]))
def test_lookalikes_differ_bare_and_inside_of_containers(group: list[object]) -> None:
    for one, other in combinations(group, 2):
        assert canonical(one) != canonical(other), (one, other)
        assert canonical({"k": [one]}) != canonical({"k": [other]}), (one, other)
        assert canonical((one,)) != canonical((other,)), (one, other)


@pytest.mark.mission("B1")
@pytest.mark.fault("F14")
def test_order_of_entries_and_members_does_not_matter() -> None:
    assert canonical({"a": 1, "b": {"c": 2, "d": 3}}) == canonical({"b": {"d": 3, "c": 2}, "a": 1})
    assert canonical({1: "x", "1": "y"}) == canonical({"1": "y", 1: "x"})
    assert canonical({"b", "a", 3}) == canonical(frozenset([3, "a", "b"]))


@pytest.mark.fault("F13")
def test_a_dict_may_mix_the_types_of_its_keys() -> None:
    mixed = {1: 1, "1": 1, None: 1, (1, 2): 1, Decimal(2): 1, dt.date(2024, 1, 1): 1}
    assert canonical(mixed) == canonical(dict(reversed(mixed.items())))


def test_bytes_bytearray_and_memoryview_are_one_type() -> None:
    view = memoryview(b"abc")
    assert canonical(b"abc") == canonical(bytearray(b"abc")) == canonical(view)
    assert canonical((b"abc",)) == canonical((bytearray(b"abc"),)) == canonical((view,))
    with pytest.raises(InvalidKey, match="contiguous"):
        canonical(view[::2])


def test_one_instant_in_two_zones_is_one_and_its_fold_counts() -> None:
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
    noon = dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC)
    assert canonical(noon) == canonical(noon.astimezone(berlin))
    twice = dt.datetime(2024, 10, 27, 2, 30, tzinfo=berlin)
    assert canonical(twice) != canonical(twice.replace(fold=1))
    for edge in (dt.datetime.min, dt.datetime.max):  # noqa: DTZ901 - the zone follows
        for hours in (-14, 14):
            canonical(edge.replace(tzinfo=dt.timezone(dt.timedelta(hours=hours))))


def test_a_decimal_does_not_depend_on_the_decimal_context() -> None:
    expected = canonical(Decimal("1E+5"))
    with localcontext() as context:
        context.capitals = 0
        context.prec = 1
        assert canonical(Decimal("1E+5")) == expected


@pytest.mark.fault("F10")
@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_what_is_not_a_number_is_refused_at_any_depth(text: str) -> None:
    for number in (float(text), Decimal(text)):
        for value in (number, [1, {"a": number}], (number,), {"a": b"x", "b": [0.5, number]}, {number: 1}, {number}):
            with pytest.raises(InvalidKey, match="not a number"):
                canonical(value)
    with pytest.raises(InvalidKey):
        canonical(Decimal("sNaN"))


def test_bytes_that_look_like_a_nan_are_only_bytes() -> None:
    assert canonical(b"\xcb\x7f\xf8") != canonical(b"\xcb\x7f\xf9")


@pytest.mark.fault("F3")
@pytest.mark.parametrize("value", ["\ud800", ["x\udfff"], {"\ud800": 1}, {"a": ("\ud800",)}, Name("\ud800")])
def test_a_lone_surrogate_is_refused(value: object) -> None:
    with pytest.raises(InvalidKey, match="surrogate"):
        canonical(value)


@pytest.mark.fault("F16")
def test_huge_integers_are_exact_up_to_a_limit_that_the_error_names() -> None:
    limit = 2**4096 - 1
    assert canonical(limit) != canonical(limit - 1)
    for value in (10**5000, -(10**5000), [10**5000]):
        with pytest.raises(InvalidKey, match="4,096"):
            canonical(value)


@pytest.mark.fault("F14")
@pytest.mark.parametrize(
    "value", [object(), Opaque(), print, lambda: 1, iter([1]), json, Order, SimpleNamespace(a=1), 1j, range(3)]
)
def test_what_declares_no_content_is_refused(value: object) -> None:
    with pytest.raises(InvalidKey, match="no declared content"):
        canonical([value])


def test_the_error_names_the_place_the_type_and_a_cure() -> None:
    payload = {"items": [1, 2, 3, {"owner": Opaque()}]}
    with pytest.raises(InvalidKey) as caught:
        canonical({"payload": payload}, root="")
    assert str(caught.value).startswith("payload.items[3].owner: ")
    assert f"{__name__}.Opaque" in str(caught.value)
    assert "dataclass" in str(caught.value)
    with pytest.raises(InvalidKey, match=r"value\.lines\[0\]: "):
        canonical(Order(1, [Opaque()]))  # type: ignore[list-item]
    with pytest.raises(InvalidKey, match=r"value\['two words'\]\[tuple\]"):
        canonical({"two words": {(1,): Opaque()}})


@pytest.mark.fault("F17")
def test_bottomless_nesting_and_cycles_are_a_clear_error() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    ring: dict[str, object] = {}
    ring["self"] = (ring,)
    own = Order(1, [])
    own.lines.append(own)  # type: ignore[arg-type]
    for value in (nested(100_000), cycle, ring, own, (nested(100_000),)):
        with pytest.raises(InvalidKey, match="levels deep"):
            canonical(value)
    canonical(nested(MAX_DEPTH))
    canonical((nested(MAX_DEPTH - 1),))
    with pytest.raises(InvalidKey, match="levels deep"):
        canonical((nested(MAX_DEPTH),))


def test_a_value_that_unfolds_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_module, "MAX_ITEMS", 1000)
    value: object = ()
    for _ in range(60):
        value = (value, value)
    with pytest.raises(InvalidKey, match="more than 1,000 items"):
        canonical(value)


def test_a_value_that_is_too_large_is_refused_on_both_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagged_module, "MAX_BYTES", 1 << 20)
    monkeypatch.setattr("onceward.keys.canonical.MAX_BYTES", 1 << 20)
    large, half = "x" * (1 << 21), "x" * 600_000
    cases: list[tuple[object, str]] = [(large, "arguments"), ((large,), r"\[0\]"), ((half, half, half), r"\[1\]")]
    for value, place in cases:
        with pytest.raises(InvalidKey, match=rf"^{place}: larger than 1 MiB"):
            canonical(value, root="")


def test_naive_datetimes_and_zones_without_an_offset_are_refused() -> None:
    with pytest.raises(InvalidKey, match="without a time zone"):
        canonical({"at": dt.datetime(2024, 1, 1)})  # noqa: DTZ001 - naive is the point
    with pytest.raises(InvalidKey, match="offset"):
        canonical(dt.time(1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")))


def test_times_finer_than_microseconds_are_not_cut_silently() -> None:
    class Stamp(dt.datetime):
        nanosecond = 7

    with pytest.raises(InvalidKey, match="more precise than microseconds"):
        canonical(Stamp(2024, 1, 1, tzinfo=dt.UTC))


def test_a_subclass_has_no_say_in_its_plain_value() -> None:
    class Shouting(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "other"

        def encode(self, encoding: str = "", errors: str = "") -> bytes:
            return b"other"

    assert canonical(Shouting("a")) != canonical(Shouting("b"))


def test_models_count_their_declared_fields_and_permitted_extras() -> None:
    class Open(pydantic.BaseModel, extra="allow"):
        id: int

    assert canonical(Open(id=1)) != canonical(Open.model_validate({"id": 1, "note": "x"}))
    assert canonical(Parcel(1, None)) != canonical(Parcel(1, 0.0))
    half = Letter.__new__(Letter)
    with pytest.raises(InvalidKey, match="no value for its field"):
        canonical(half)


def test_a_dataclass_that_is_also_a_dict_counts_both() -> None:
    @dataclasses.dataclass
    class Both(dict[str, int]):
        id: int

    one, other = Both(1), Both(1)
    other["x"] = 1
    assert len({canonical(each) for each in (one, other, Both(2))}) == 3


def test_the_order_in_which_a_class_declares_its_fields_does_not_matter() -> None:
    one = msgspec.defstruct("Same", ["a", "b"], module="shop")
    two = msgspec.defstruct("Same", ["b", "a"], module="shop")
    assert canonical(one(a=1, b=2)) == canonical(two(a=1, b=2)) != canonical(one(a=2, b=1))


def test_the_digest_is_the_sha256_of_the_encoding() -> None:
    assert digest({"a": 1}) == hashlib.sha256(canonical({"a": 1})).digest()
    assert digest({"a": 1}) != digest({"a": 2})
