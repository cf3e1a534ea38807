"""Results: what comes back is what went in, type and value, or it is refused while encoding."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import fractions
import functools
import ipaddress
import math
import pathlib
import sys
import typing
import uuid
import zoneinfo
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceward.results.declared import declared_shapes
from onceward.results.result_type import ResultType
from tests.unit.result_classes import (
    MONEY,
    ORDER,
    Level,
    Mode,
    Model,
    ModelPage,
    Money,
    Name,
    Names,
    Node,
    Open,
    Order,
    OrderLine,
    Page,
    Parcel,
    Point,
    Rights,
    Row,
    Table,
    UserId,
    Words,
)
from tests.unit.result_values import ANYTHING, assert_comes_back, values


@pytest.mark.rival(14)
@given(values)
def test_every_value_comes_back_with_its_type(value: Any) -> None:
    assert_comes_back(value)


@given(values)
def test_the_fast_way_and_the_careful_way_write_the_same_format(value: Any) -> None:
    data = ANYTHING.encode(value)
    assert ANYTHING._encode_with_writer(value) == data


@given(st.sets(st.text() | st.integers()))
@example({0, 8, 16})  # these collide in a small set, whose order then depends on the order of insertion
def test_equal_sets_are_equal_bytes(value: set[Any]) -> None:
    refilled: set[Any] = set()
    refilled.update(reversed(list(value)))
    assert ANYTHING.encode(value) == ANYTHING.encode(refilled)


@pytest.mark.rival(2)
@pytest.mark.fault("F20")
@pytest.mark.parametrize("value", [None, 0, 0.0, -0.0, False, True, "", b"", [], {}, (), set(), frozenset()], ids=repr)
def test_empty_and_false_values_are_values(value: Any) -> None:
    assert_comes_back(value)


@pytest.mark.rival(14)
@pytest.mark.parametrize(
    "value",
    [
        (1, [2, (3,)]),
        {1: "a", "1": "b", (2, 3): "c", None: "d"},
        {"nested": {True: {frozenset({1}): 2.0}}},
        {"b": 1, "a": 2},
        {1, "1", (1,)},
        bytearray(b"x"),
        [b"x", bytearray(b"x")],
        2**64,
        -(2**63) - 1,
        [2**64 - 1, -(2**63), 10**5000],
        math.nan,
        [math.inf, -math.inf],
        complex(-0.0, math.inf),
        "\ud800 alone",
        {"\ud800": 1},
        decimal.Decimal("1.10"),
        decimal.Decimal("-NaN123"),
        decimal.Decimal("1E+999999"),
        fractions.Fraction(1, 3),
        uuid.UUID(int=5),
        dt.date(2024, 2, 29),
        dt.time(1, 2, 3, 4, fold=1),
        dt.time(1, 2, tzinfo=dt.UTC),
        dt.timedelta(days=-1, microseconds=1),
        dt.timedelta.max,
        dt.datetime(2024, 1, 1, 1, 2, 3, 4),  # noqa: DTZ001  # naive stays naive
        dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30), "IST")),
        dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        zoneinfo.ZoneInfo("Asia/Tokyo"),
        pathlib.PurePosixPath("/a/b"),
        pathlib.PureWindowsPath("C:\\a"),
        pathlib.Path("here"),
        ipaddress.ip_address("::1"),
        ipaddress.ip_network("10.0.0.0/8"),
        ipaddress.ip_interface("10.0.0.1/8"),
        collections.deque([1, (2,)], maxlen=3),
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.Counter({"a": 2}),
        range(1, 10, 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_builtin_and_library_type_comes_back(value: Any) -> None:
    assert_comes_back(value)


def test_an_ordered_dict_keeps_the_order_it_was_given_later() -> None:
    ordered = collections.OrderedDict.fromkeys("abc")
    ordered.move_to_end("a")
    assert list(ANYTHING.decode(ANYTHING.encode(ordered))) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Mode.RED, Mode),
        (Level.LOW, Level),
        (Name.A, Name),
        (Rights.READ | Rights.WRITE, Rights),
        (Mode.RED, typing.Literal[Mode.RED]),
        ({Name.A: 1}, dict[Name, int]),
        (ORDER.lines[0], OrderLine),
        (ORDER, Order | None),
        (None, typing.Optional[Order]),  # noqa: UP045  # the old spelling is walked too
        ([ORDER], list[Order]),
        ((1, Point(1, 2.0)), tuple[int, Point]),
        ({1: [Point(2)]}, dict[int, list[Point]]),
        (Point(1), typing.Annotated[Point, "meta"]),
        (MONEY, Money),
        (Parcel(3, [ORDER]), Parcel),
        (Words("a b"), UserId),
        (Names(["a"]), Names),
        (Table(a=1), Table),
        ({"order": ORDER, "point": Point(2)}, Row),
        (Page([ORDER]), Page[Order]),
        (ModelPage[Point](items=[Point(1)]), ModelPage[Point]),
        (ModelPage(items=[Point(1)]), ModelPage[Point]),
        (Node(1, Node(2)), Node),
    ],
    ids=lambda value: f"{value!s:.30}",
)
def test_each_kind_of_declared_class_comes_back(value: Any, annotation: Any) -> None:
    result_type = ResultType(annotation)
    back = result_type.decode(result_type.encode(value))
    assert type(back) is type(value)
    assert back == value


def test_a_pydantic_model_comes_back_whole_with_excluded_private_and_extra_parts() -> None:
    model = Model.model_validate(
        {"id": str(uuid.UUID(int=1)), "when": "2024-01-01T00:00:00+02:00", "secret": 7, "parcel": MONEY}
    )
    model._note = "kept"
    result_type = ResultType(Model | Open)
    back = result_type.decode(result_type.encode(model))
    assert back == model
    assert (back.secret, back._note, back.model_fields_set) == (7, "kept", model.model_fields_set)
    assert type(back.when.tzinfo) is type(model.when.tzinfo)
    opened = Open(A=1, other=(2, 3))  # type: ignore[call-arg]
    assert result_type.decode(result_type.encode(opened)).other == (2, 3)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="`type X = …` came with Python 3.12")
def test_a_type_alias_declares_what_it_stands_for() -> None:
    space: dict[str, Any] = {"Point": Point}
    exec("type Alias = list[Point]\ntype Lost = list[Undefined]", space)
    assert_comes_back([Point(1)], space["Alias"])
    assert declared_shapes(space["Lost"]) == {}


def test_type_variables_declare_their_bound_and_constraints() -> None:
    bound = typing.TypeVar("bound", bound=Point)
    either = typing.TypeVar("either", OrderLine, Mode)
    names = " ".join(declared_shapes(tuple[bound, either]))  # type: ignore[valid-type]
    assert all(name in names for name in ("Point", "OrderLine", "Mode"))


def test_one_annotation_that_cannot_be_resolved_does_not_hide_the_others() -> None:
    @dataclasses.dataclass
    class Partly:
        point: Point
        ghost: Undefined | None = None  # type: ignore[name-defined]  # noqa: F821
        again: Partly | None = None

    assert_comes_back(Partly(Point(1), None, Partly(Point(2))), Partly)


def test_the_constructor_does_not_run_again_on_a_replay() -> None:
    calls = []

    @dataclasses.dataclass
    class Loud:
        given: dataclasses.InitVar[int]
        doubled: int = dataclasses.field(init=False)

        def __post_init__(self, given: int) -> None:
            calls.append(given)
            self.doubled = 2 * given

    result_type = ResultType(Loud)
    back = result_type.decode(result_type.encode(Loud(4)))
    assert (back.doubled, calls) == (8, [4])


def test_a_post_init_of_msgspec_cannot_change_what_was_stored() -> None:
    class Growing(msgspec.Struct):
        count: int

        def __post_init__(self) -> None:
            self.count += 1

    result_type = ResultType(Growing)
    assert result_type.decode(result_type.encode(Growing(1))).count == 2


def test_a_cached_property_is_no_hidden_state() -> None:
    class Square(pydantic.BaseModel):
        side: int

        @functools.cached_property
        def area(self) -> int:
            return self.side**2

    square = Square(side=3)
    assert square.area == 9
    squares = ResultType(Square)
    assert squares.decode(squares.encode(square)).area == 9

    @dataclasses.dataclass
    class Circle:
        radius: int

        @functools.cached_property
        def area(self) -> int:
            return 3 * self.radius**2

    circle = Circle(2)
    assert circle.area == 12
    result_type = ResultType(Circle)
    assert result_type.decode(result_type.encode(circle)).area == 12
