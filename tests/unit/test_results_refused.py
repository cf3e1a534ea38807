"""Results that could not come back as they were are refused while encoding."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import threading
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import ormsgpack
import pytest

from onceward.results.result_type import MAX_DEPTH, ResultType, Unstorable
from tests.unit.result_classes import Names, Node, Open, Order, OrderLine, Point, Words
from tests.unit.result_values import ANYTHING, assert_comes_back


class Opaque:
    pass


@dataclasses.dataclass
class SubOrderLine(OrderLine):
    pass


def generator() -> Iterator[int]:
    yield 1


async def coroutine() -> None:
    pass


def closed_coroutine() -> Any:
    made = coroutine()
    made.close()
    return made


@pytest.mark.fault("F21")
@pytest.mark.rival(13)
@pytest.mark.parametrize(
    "make",
    [
        generator,
        closed_coroutine,
        lambda: threading.Lock(),  # noqa: PLW0108  # a factory has no useful name in the report
        lambda: print,
        lambda: int,
        lambda: memoryview(b"x"),
        lambda: ormsgpack.Ext(1, b"\x90"),
        lambda: ormsgpack.Ext(32, b"\x90"),
        Opaque,
        lambda: ValueError("x"),
        lambda: iter([]),
        lambda: types.SimpleNamespace(a=1),
        lambda: collections.defaultdict(list),
        lambda: SubOrderLine("a", decimal.Decimal(1)),
        lambda: Words("not declared"),
        lambda: dt.datetime(2024, 1, 1, tzinfo=Zone()),
    ],
)
def test_what_cannot_come_back_is_refused_while_encoding(make: Callable[[], Any]) -> None:
    with pytest.raises(Unstorable):
        ResultType(dict[str, list[OrderLine]]).encode({"deep": [make()]})


class Zone(dt.tzinfo):
    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        return dt.timedelta(hours=1)

    def dst(self, when: dt.datetime | None) -> None:
        return None

    def tzname(self, when: dt.datetime | None) -> str:
        return "ours"


def test_a_time_zone_that_only_its_author_knows_is_refused_with_a_way_out() -> None:
    with pytest.raises(Unstorable, match=r"Zone cannot be stored; use zoneinfo\.ZoneInfo"):
        ANYTHING.encode(dt.datetime(2024, 1, 1, tzinfo=Zone()))


def test_a_defaultdict_is_refused_even_if_declared() -> None:
    with pytest.raises(Unstorable, match="defaultdict is not a type that can be stored"):
        ResultType(collections.defaultdict[str, int]).encode(collections.defaultdict(int))


def test_an_open_file_is_refused(tmp_path: pathlib.Path) -> None:
    with (tmp_path / "f").open("w") as file, pytest.raises(Unstorable):
        ANYTHING.encode(file)


def test_the_refusal_says_where_and_why() -> None:
    with pytest.raises(
        Unstorable, match=r"^result\['orders'\]\[1\]\.lines\[0\]: .*Opaque is not a type that can be stored"
    ):
        ResultType(dict[str, list[Order]]).encode({"orders": [1, Order(1, [Opaque()])]})  # type: ignore[list-item]
    with pytest.raises(Unstorable, match=r"Point is not named in the return annotation"):
        ANYTHING.encode(Point(1))


@pytest.mark.finding("N25")
def test_the_refusal_for_logs_names_no_attribute_because_its_name_may_be_payload() -> None:
    line = OrderLine("a", decimal.Decimal(1))
    setattr(line, "ada@example.org", 1)
    with pytest.raises(Unstorable, match=r"has 'ada@example\.org' outside") as refused:
        ResultType(OrderLine).encode(line)
    assert (
        refused.value.public == "result: tests.unit.result_classes:OrderLine has attributes outside its declared fields"
    )


class Quoting(msgspec.Struct):
    """Its `__post_init__` rejects an instance only when it is decoded, and quotes its value."""

    name: str
    born: typing.ClassVar[int] = 0

    def __post_init__(self) -> None:
        type(self).born += 1
        if self.born > 1:
            raise TypeError(f"{self.name} is not a name")


@pytest.mark.finding("N25")
def test_the_refusal_of_a_struct_that_cannot_be_rebuilt_quotes_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quoting, "born", 0)
    with pytest.raises(Unstorable) as refused:
        ResultType(Quoting).encode(Quoting("ada@example.org"))
    assert "ada@example.org" not in f"{refused.value} {refused.value.public}"
    assert "cannot be rebuilt: TypeError" in str(refused.value)


@pytest.mark.finding("N25")
def test_the_refusal_for_logs_names_no_field_that_a_pydantic_model_was_given() -> None:
    model = Open(A=1)
    model.__dict__["ada@example.org"] = 1
    with pytest.raises(Unstorable, match=r"no field 'ada@example\.org'") as refused:
        ResultType(Open).encode(model)
    assert "ada@example.org" not in refused.value.public


def test_hidden_state_is_refused_rather_than_lost() -> None:
    line = OrderLine("a", decimal.Decimal(1))
    line.extra = 1  # type: ignore[attr-defined]
    words = Names(["a"])
    words.extra = 1  # type: ignore[attr-defined]
    for value in (line, words):
        with pytest.raises(Unstorable, match="has 'extra' outside its declared fields"):
            ResultType(OrderLine | Names).encode(value)

    class Base:
        __slots__ = ("__hidden",)

        def hide(self) -> None:
            self.__hidden = 1

    @dataclasses.dataclass(slots=True)
    class Slotted(Base):
        a: int

    slotted = Slotted(1)
    assert_comes_back(slotted, Slotted)
    slotted.hide()
    with pytest.raises(Unstorable, match="_Base__hidden"):
        ResultType(Slotted).encode(slotted)


def test_a_class_that_does_not_survive_the_round_trip_is_refused() -> None:
    class Picky(msgspec.Struct):
        a: list[int]

        def __post_init__(self) -> None:
            if len(self.a) > 1:
                raise ValueError("too many")

    picky = Picky([1])
    picky.a.append(2)
    with pytest.raises(Unstorable, match="cannot be rebuilt"):
        ResultType(Picky).encode(picky)

    class Odd(enum.Enum):
        A = 1

        @classmethod
        def _missing_(cls, value: object) -> Odd:
            made = object.__new__(cls)
            made._name_, made._value_ = "made up", value
            return made

    with pytest.raises(Unstorable, match="has no member 'made up'"):
        ResultType(Odd).encode(Odd(99))


def test_a_half_initialised_instance_is_refused() -> None:
    with pytest.raises(Unstorable, match="'price' is missing"):
        half = OrderLine.__new__(OrderLine)
        half.sku = "a"
        ResultType(OrderLine).encode(half)


def test_broken_user_code_is_a_refusal_not_a_crash() -> None:
    class Broken(dict[str, int]):
        pass

    @dataclasses.dataclass
    class Raises:
        a: int

        def __getattribute__(self, name: str) -> Any:
            if name == "a":
                raise OSError("disk on fire")
            return super().__getattribute__(name)

    with pytest.raises(Unstorable, match="reading it raised OSError"):
        ResultType(Raises).encode(Raises(1))
    assert_comes_back(Broken(a=1), Broken)


NESTED = Node | list[Any] | dict[Any, Any] | tuple[Any, ...]


@pytest.mark.parametrize(
    "wrap", [lambda x: [x], lambda x: {"a": x}, lambda x: (x,), lambda x: {1: x}, lambda x: Node(1, x)]
)
def test_depth_has_a_limit_and_never_a_recursion_error(wrap: Callable[[Any], Any]) -> None:
    result_type = ResultType(NESTED)
    value: Any = dt.date(2024, 1, 1)
    for _ in range(MAX_DEPTH):
        value = wrap(value)
    assert result_type.encode(result_type.decode(result_type.encode(value))) == result_type.encode(value)
    for deeper in (1, 20_000):
        for _ in range(deeper):
            value = wrap(value)
        with pytest.raises(Unstorable, match="nested deeper"):
            result_type.encode(value)
    while not isinstance(value, dt.date):  # taken apart by hand: Python itself frees dataclasses recursively
        value = (
            value.following
            if isinstance(value, Node)
            else next(iter(value.values() if isinstance(value, dict) else value))
        )


def test_a_cycle_is_refused() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    node = Node(1)
    node.following = node
    for value in (loop, node, {1: loop}):
        with pytest.raises(Unstorable, match="contains itself"):
            ResultType(NESTED).encode(value)
