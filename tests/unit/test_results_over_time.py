"""Results that are read later: by changed classes, by other versions, and from damaged bytes."""

from __future__ import annotations

import collections
import dataclasses
import typing
from typing import Any

import attrs
import msgspec
import ormsgpack
import pydantic
import pytest

from onceward.errors import ResultCorrupt, UnknownCodec
from onceward.results.declared import declared_shapes
from onceward.results.result_type import ResultType, Unstorable
from tests.unit.result_classes import Point
from tests.unit.result_values import ANYTHING, exactly


@pytest.mark.fault("F24")
def test_edits_by_the_caller_reach_neither_the_store_nor_the_next_replay() -> None:
    value: dict[str, Any] = {"a": [1]}
    data = ANYTHING.encode(value)
    value["a"].append(2)
    first = ANYTHING.decode(data)
    first["a"].append(3)
    assert ANYTHING.decode(data) == {"a": [1]}


def test_classes_are_found_in_the_annotation_only() -> None:
    data = ResultType(Point).encode(Point(1))
    with pytest.raises(ResultCorrupt, match=r"Point, which the return annotation does not name"):
        ANYTHING.decode(data)
    forged = ormsgpack.packb(ormsgpack.Ext(32, ormsgpack.packb(["os:system", {"command": "true"}])))
    with pytest.raises(ResultCorrupt, match="os:system"):
        ResultType(Point).decode(forged)


def in_module(module: str, name: str = "Receipt") -> Any:
    cls = dataclasses.make_dataclass("Receipt", [("number", int)])
    cls.__module__, cls.__qualname__ = module, name
    return cls


def test_a_class_that_moved_to_another_module_is_still_that_class() -> None:
    """A script that is run is `__main__`, and the same file is `jobs` to those who import it."""
    run, imported = in_module("__main__"), in_module("jobs")
    stored = ResultType(run).encode(run(7))
    assert exactly(ResultType(imported).decode(stored), imported(7))
    assert exactly(ResultType(run).decode(ResultType(imported).encode(imported(7))), run(7))
    assert exactly(ResultType(list[imported] | imported).decode(stored), imported(7))  # type: ignore[valid-type]


@pytest.mark.parametrize(
    "declared", [("one", "two"), ("one.Order.Receipt",)], ids=["two of that name", "another nesting"]
)
def test_a_class_that_moved_is_not_guessed(declared: tuple[str, ...]) -> None:
    moved = in_module("__main__")
    stored = ResultType(moved).encode(moved(7))
    known = [in_module(*one.partition(".")[::2]) if "." in one else in_module(one) for one in declared]
    with pytest.raises(ResultCorrupt, match="does not name") as refused:
        ResultType(typing.Union[tuple(known)]).decode(stored)  # noqa: UP007 (made of a list)
    assert "run the work again" in str(refused.value)  # the hint "forget the key" must say what that does


def versions(old: Any, new: Any) -> tuple[ResultType, ResultType]:
    """Two states of one class, as before and after a deployment."""
    for cls in (old, new):
        cls.__module__, cls.__qualname__ = "app", "Thing"
    return ResultType(old), ResultType(new)


def made(kind: str, *fields: Any) -> Any:
    """A class of the given kind with these fields: a name, or a name and a default."""
    if kind == "dataclass":
        return dataclasses.make_dataclass("Thing", [(f[0], int, *f[1:]) for f in fields])
    if kind == "struct":
        return msgspec.defstruct("Thing", [(f[0], int, *f[1:]) for f in fields])
    if kind == "attrs":
        return attrs.make_class("Thing", {f[0]: attrs.field(default=f[1]) if f[1:] else attrs.field() for f in fields})
    if kind == "pydantic":
        return pydantic.create_model("Thing", **{f[0]: (int, f[1] if f[1:] else ...) for f in fields})  # type: ignore[call-overload]
    names, defaults = [f[0] for f in fields], [f[1] for f in fields if f[1:]]
    return collections.namedtuple("Thing", names, defaults=defaults)  # noqa: PYI024  # only this one takes defaults


KINDS = ["dataclass", "struct", "attrs", "pydantic", "named tuple"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_added_with_a_default_still_reads(kind: str) -> None:
    old, new = made(kind, ("a",)), made(kind, ("a",), ("b", 5))
    before, after = versions(old, new)
    back = after.decode(before.encode(old(a=1)))
    assert (type(back), back.a, back.b) == (new, 1, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_renamed_field_is_a_clear_error(kind: str) -> None:
    old, new = made(kind, ("a",)), made(kind, ("z",))
    before, after = versions(old, new)
    with pytest.raises(
        ResultCorrupt, match=r"another version of its class: app:Thing: .*'a'.* → give new fields a default"
    ):
        after.decode(before.encode(old(a=1)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_added_without_a_default_is_a_clear_error(kind: str) -> None:
    old, new = made(kind, ("a",)), made(kind, ("a",), ("b",))
    before, after = versions(old, new)
    with pytest.raises(ResultCorrupt, match=r"another version of its class: app:Thing: .*'b'"):
        after.decode(before.encode(old(a=1)))


@pytest.mark.fault("F26")
def test_an_extension_from_the_future_is_an_unknown_codec() -> None:
    with pytest.raises(UnknownCodec, match="newer version of Onceward"):
        ANYTHING.decode(ormsgpack.packb([ormsgpack.Ext(99, b"")]))


@pytest.mark.fault("F25")
@pytest.mark.parametrize("data", [b"", b"\x92\x01", b"\xd4\x02\xc1", b"\xd4\x10\x00", b"\xd4\x20\x90"])
def test_bytes_that_are_no_result_are_corrupt(data: bytes) -> None:
    with pytest.raises(ResultCorrupt):
        ANYTHING.decode(data)


@pytest.mark.fault("F25")
def test_a_fraction_of_a_few_bytes_cannot_take_hours() -> None:
    with pytest.raises(ResultCorrupt):
        ANYTHING.decode(ormsgpack.packb(ormsgpack.Ext(18, b"1e99999999")))


def test_an_interrupt_while_rebuilding_is_not_swallowed() -> None:
    class Interrupting(msgspec.Struct):
        a: int

        def __post_init__(self) -> None:
            raise KeyboardInterrupt

    result_type = ResultType(Interrupting)
    [name] = declared_shapes(Interrupting)
    data = ormsgpack.packb(ormsgpack.Ext(32, ormsgpack.packb([name, {"a": 1}])))
    with pytest.raises(KeyboardInterrupt):
        result_type.decode(data)


def test_two_classes_of_one_name_are_never_mixed_up() -> None:
    one, two = made("dataclass", ("a",)), made("dataclass", ("a",))
    versions(one, two)
    both = ResultType(one | two)
    outcomes = []
    for cls in (one, two):
        try:
            outcomes.append(type(both.decode(both.encode(cls(1)))) is cls)
        except Unstorable:
            outcomes.append(False)
    assert sorted(outcomes) == [False, True]
