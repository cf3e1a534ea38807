"""Results: what comes back is what went in, type and value, or it is refused while encoding."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import ipaddress
import math
import pathlib
import sys
import threading
import types
import typing
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import msgspec
import ormsgpack
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceward.errors import ResultCorrupt, UnknownCodec
from onceward.model.results import MAX_DEPTH, ResultType, Unstorable

ANYTHING = ResultType()


def exactly(left: Any, right: Any) -> bool:
    """Equal in type and value, at every depth. NaN is itself, 0.0 is not -0.0, the order of dicts counts."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    if isinstance(left, complex):
        return exactly(left.real, right.real) and exactly(left.imag, right.imag)
    if isinstance(left, decimal.Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    if isinstance(left, dt.datetime | dt.time):
        zones = left.tzinfo, right.tzinfo
        return (
            left.replace(tzinfo=None) == right.replace(tzinfo=None)
            and left.fold == right.fold
            and repr(zones[0]) == repr(zones[1])
        )
    if isinstance(left, dict):
        return len(left) == len(right) and all(map(exactly, left.items(), right.items()))
    if isinstance(left, list | tuple | collections.deque):
        return len(left) == len(right) and all(map(exactly, left, right))
    if isinstance(left, set | frozenset):
        return len(left) == len(right) and all(any(exactly(a, b) for b in right) for a in left)
    if hasattr(left, "__dict__") and not isinstance(left, enum.Enum | pathlib.PurePath):
        return exactly(vars(left), vars(right))
    return bool(left == right)


def assert_comes_back(value: Any, annotation: Any = Any) -> None:
    result_type = ResultType(annotation)
    back = result_type.decode(result_type.encode(value))
    assert exactly(value, back), f"{value!r} came back as {back!r}"


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**200), max_value=2**200)
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.decimals()
    | st.fractions()
    | st.uuids()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.datetimes(
        timezones=st.none() | st.timezones() | st.just(dt.UTC) | st.just(dt.timezone(dt.timedelta(hours=-3), "ART"))
    )
    | st.complex_numbers()
    | st.ip_addresses()
    | st.binary().map(bytearray)
)
hashable = st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.dates() | st.uuids()
keys = hashable | st.tuples(hashable, hashable)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.sets(keys, max_size=4)
        | st.frozensets(keys, max_size=4)
        | st.lists(inner, max_size=3).map(lambda items: collections.deque(items, maxlen=5))
    ),
    max_leaves=12,
)


@pytest.mark.rival(14)
@given(values)
def test_every_value_comes_back_with_its_type(value: Any) -> None:
    assert_comes_back(value)


@given(values)
def test_the_fast_way_and_the_careful_way_write_the_same_format(value: Any) -> None:
    data = ANYTHING.encode(value)
    assert ANYTHING._encode_with_care(value) == data


@given(st.sets(st.text() | st.integers()))
@example({0, 8, 16})  # these collide in a small set, whose order then tells in which order it was filled
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


# --- classes ---------------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "r"


class Level(enum.IntEnum):
    LOW = 1


class Name(enum.StrEnum):
    A = "a"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Line:
    sku: str
    price: decimal.Decimal
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    id: int
    lines: list[Line]
    colour: Colour | None = None


class Point(typing.NamedTuple):
    x: int
    y: float = 0.0


class Money(msgspec.Struct, frozen=True, kw_only=True):
    amount: decimal.Decimal
    at: Point


@attrs.frozen
class Parcel:
    _weight: int
    contents: list[Order] = attrs.field(factory=list)


class Model(pydantic.BaseModel, arbitrary_types_allowed=True):
    id: uuid.UUID
    when: dt.datetime
    secret: int = pydantic.Field(default=1, exclude=True)
    parcel: Money | None = None
    _note: str = pydantic.PrivateAttr(default="none")


class Open(pydantic.BaseModel, extra="allow"):
    a: int = pydantic.Field(alias="A")


class Row(typing.TypedDict):
    order: typing.Required[Order]
    point: typing.NotRequired[Point]


T = typing.TypeVar("T")


@dataclasses.dataclass
class Page(typing.Generic[T]):
    items: list[T]


class ModelPage(pydantic.BaseModel, typing.Generic[T]):
    items: list[T]


class Words(str):
    __slots__ = ()


class Names(list[str]):
    pass


class Table(dict[str, int]):
    pass


UserId = typing.NewType("UserId", Words)
ORDER = Order(1, [Line("a", decimal.Decimal("1.10"), ("x",))], Colour.RED)
MONEY = Money(amount=decimal.Decimal("2.50"), at=Point(1))


@dataclasses.dataclass
class Node:
    value: int
    following: Node | None = None


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Colour.RED, Colour),
        (Level.LOW, Level),
        (Name.A, Name),
        (Rights.READ | Rights.WRITE, Rights),
        (Colour.RED, typing.Literal[Colour.RED]),
        ({Name.A: 1}, dict[Name, int]),
        (ORDER.lines[0], Line),
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
    exec("type Alias = list[Point]\ntype Lost = list[Nowhere]", space)
    assert_comes_back([Point(1)], space["Alias"])
    assert ResultType(space["Lost"]).classes == ()


def test_type_variables_declare_their_bound_and_constraints() -> None:
    bound = typing.TypeVar("bound", bound=Point)
    either = typing.TypeVar("either", Line, Colour)
    names = " ".join(ResultType(tuple[bound, either]).classes)  # type: ignore[valid-type]
    assert all(name in names for name in ("Point", "Line", "Colour"))


def test_one_annotation_that_cannot_be_resolved_does_not_hide_the_others() -> None:
    @dataclasses.dataclass
    class Partly:
        point: Point
        ghost: Nowhere | None = None  # type: ignore[name-defined]  # noqa: F821
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


# --- what is refused -------------------------------------------------------------------------------------------------


class Opaque:
    pass


@dataclasses.dataclass
class SubLine(Line):
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
        lambda: SubLine("a", decimal.Decimal(1)),
        lambda: Words("not declared"),
        lambda: dt.datetime(2024, 1, 1, tzinfo=Zone()),
    ],
)
def test_what_cannot_come_back_is_refused_while_encoding(make: Callable[[], Any]) -> None:
    with pytest.raises(Unstorable):
        ResultType(Line).encode({"deep": [make()]})


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
        ResultType(Order).encode({"orders": [1, Order(1, [Opaque()])]})  # type: ignore[list-item]
    with pytest.raises(Unstorable, match=r"Point is not named in the return annotation"):
        ANYTHING.encode(Point(1))


def test_hidden_state_is_refused_rather_than_lost() -> None:
    line = Line("a", decimal.Decimal(1))
    line.extra = 1  # type: ignore[attr-defined]
    words = Names(["a"])
    words.extra = 1  # type: ignore[attr-defined]
    for value in (line, words):
        with pytest.raises(Unstorable, match="keeps 'extra' outside of its fields"):
            ResultType(Line | Names).encode(value)

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
        half = Line.__new__(Line)
        half.sku = "a"
        ResultType(Line).encode(half)


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


@pytest.mark.parametrize(
    "wrap", [lambda x: [x], lambda x: {"a": x}, lambda x: (x,), lambda x: {1: x}, lambda x: Node(1, x)]
)
def test_depth_has_a_limit_and_never_a_recursion_error(wrap: Callable[[Any], Any]) -> None:
    result_type = ResultType(Node)
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
            ResultType(Node).encode(value)


# --- reading ---------------------------------------------------------------------------------------------------------


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
    assert exactly(ResultType(list[imported]).decode(stored), imported(7))  # type: ignore[valid-type]


@pytest.mark.parametrize(
    "declared", [("one", "two"), ("one.Order.Receipt",)], ids=["two of that name", "another nesting"]
)
def test_a_class_that_moved_is_not_guessed(declared: tuple[str, ...]) -> None:
    moved = in_module("__main__")
    stored = ResultType(moved).encode(moved(7))
    known = [in_module(*one.partition(".")[::2]) if "." in one else in_module(one) for one in declared]
    with pytest.raises(ResultCorrupt, match="does not name") as refused:
        ResultType(typing.Union[tuple(known)]).decode(stored)  # noqa: UP007 (made of a list)
    assert "run the work again" in str(refused.value)  # who reads "forget the key" must know what that does


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
    with pytest.raises(UnknownCodec, match="newer Onceward"):
        ANYTHING.decode(ormsgpack.packb([ormsgpack.Ext(99, b"")]))


@pytest.mark.fault("F25")
@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x92\x01", b"\xd4\x02\xc1", b"\xd4\x10\x00", b"\xd4\x20\x90"])
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
    data = ormsgpack.packb(ormsgpack.Ext(32, ormsgpack.packb([result_type.classes[0], {"a": 1}])))
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
