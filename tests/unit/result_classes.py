"""Classes of every kind that a result may have."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import typing
import uuid

import attrs
import msgspec
import pydantic

# --- classes ---------------------------------------------------------------------------------------------------------


class Mode(enum.Enum):
    RED = "r"


class Level(enum.IntEnum):
    LOW = 1


class Name(enum.StrEnum):
    A = "a"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class OrderLine:
    sku: str
    price: decimal.Decimal
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    id: int
    lines: list[OrderLine]
    mode: Mode | None = None


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
ORDER = Order(1, [OrderLine("a", decimal.Decimal("1.10"), ("x",))], Mode.RED)
MONEY = Money(amount=decimal.Decimal("2.50"), at=Point(1))


@dataclasses.dataclass
class Node:
    value: int
    following: Node | None = None
