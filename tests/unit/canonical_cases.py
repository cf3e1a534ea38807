"""Values whose encoding is frozen, with the classes they need. Importable by child processes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import pathlib
import sys
import uuid
from collections import OrderedDict
from decimal import Decimal
from typing import NamedTuple

import attrs
import msgspec
import pydantic

from onceward.keys.canonical import canonical


@dataclasses.dataclass
class Order:
    id: int
    lines: list[str]


@dataclasses.dataclass
class Invoice:
    id: int
    lines: list[str]


class Parcel(msgspec.Struct):
    id: int
    weight: float | None = None


@attrs.define
class Letter:
    id: int


class Mail(pydantic.BaseModel):
    id: int


class Point(NamedTuple):
    x: int
    y: int


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Kind(enum.StrEnum):
    A = "a"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class OrderId(int):
    pass


class Name(str):
    __slots__ = ()


CASES: dict[str, object] = {
    "none": None,
    "true": True,
    "one": 1,
    "minus one": -1,
    "64 bits": 2**64 - 1,
    "65 bits": 2**64,
    "minus 65 bits": -(2**64),
    "float": 1.0,
    "minus zero": -0.0,
    "text": "grüße \0 😀",
    "bytes": b"\x00\xff",
    "bytes that look like NaN": b"\xcb\x7f\xf8",
    "list": [1, "1", [None]],
    "tuple": (1, "1", (None,)),
    "dict": {"b": 1, "a": {"z": [], "": 2.5}},
    "dict of mixed keys": {1: "a", "1": "b", (1,): "c", None: "d"},
    "set": {3, 1, 2, "x"},
    "decimal": Decimal("-10.50"),
    "instant": dt.datetime(2024, 2, 29, 12, 30, 15, 5, tzinfo=dt.UTC),
    "date": dt.date(2024, 2, 29),
    "time": dt.time(12, 30),
    "time with offset": dt.time(12, 30, tzinfo=dt.timezone(dt.timedelta(hours=-3))),
    "timedelta": dt.timedelta(days=-1, microseconds=7),
    "uuid": uuid.UUID(int=5),
    "path": pathlib.PurePosixPath("/a/b"),
    "windows path": pathlib.PureWindowsPath("C:/a"),
    "enum": Colour.RED,
    "int enum": Level.LOW,
    "str enum": Kind.A,
    "flags": Right.READ | Right.WRITE,
    "dataclass": Order(1, ["a"]),
    "struct": Parcel(1),
    "attrs": Letter(1),
    "pydantic": Mail(id=1),
    "named tuple": Point(1, 2),
    "int subclass": OrderId(5),
    "str subclass": Name("x"),
    "dict subclass": OrderedDict(a=1),
    "unset": msgspec.UNSET,
    "100 levels": json.loads("[" * 100 + "]" * 100),
}


def dump() -> None:
    encoded = {name: canonical(value).hex() for name, value in CASES.items()}
    sys.stdout.write(json.dumps(encoded, indent=1))
