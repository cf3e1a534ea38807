"""A function whose results can never be stored is reported when it is decorated."""

from __future__ import annotations

import dataclasses
import datetime as dt
import typing
import warnings
from collections.abc import Awaitable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column
from starlette.responses import JSONResponse

from onceward import AsyncOnce, Once, OncewardWarning
from onceward.results.never_stored import never_stored
from tests.unit.result_classes import Level, OrderLine

pytestmark = pytest.mark.finding("N19")


class Table(DeclarativeBase): ...


class User(Table):
    __tablename__ = "user"
    id: Mapped[int] = mapped_column(primary_key=True)


class Order(MappedAsDataclass, Table):
    __tablename__ = "order"
    id: Mapped[int] = mapped_column(primary_key=True)


class Plain: ...


UserId = typing.NewType("UserId", int)


class Page(typing.TypedDict):
    users: list[int]


NEVER: list[tuple[Any, type]] = [
    (JSONResponse, JSONResponse),
    (User, User),
    (Order, Order),
    (Plain, Plain),
    (JSONResponse | None, JSONResponse),
    (JSONResponse | User, JSONResponse),
    (list[User], User),
    (dict[str, tuple[int, User]], User),
    (typing.Annotated[User, "x"], User),
    (Awaitable[User], User),
]
SOMETIMES: list[Any] = [
    Any, None, object, int, str, bool, float, bytes, list, dict, list[int], dict[str, Any], tuple[int, ...], UserId,
    Page, OrderLine, Level, list[OrderLine], dt.datetime, dt.date, Path, Sequence[int], Iterable[str], Hashable,
    int | User, OrderLine | JSONResponse, typing.Literal["a"], typing.TypeVar("T"), typing.NoReturn, typing.SupportsInt,
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "cls"), NEVER, ids=str)
def test_a_class_that_cannot_be_stored_is_found(annotation: Any, cls: type) -> None:
    assert never_stored(annotation) is cls


@pytest.mark.parametrize("annotation", SOMETIMES, ids=str)
def test_a_type_whose_values_may_be_stored_is_not_reported(annotation: Any) -> None:
    assert never_stored(annotation) is None


def respond(order: int) -> JSONResponse:
    return JSONResponse({})


async def respond_async(order: int) -> JSONResponse:
    return JSONResponse({})


@pytest.mark.parametrize("once", [Once("memory://"), Once("memory://").aio, AsyncOnce("memory://")], ids=repr)
def test_decorating_such_a_function_warns_and_names_the_way_out(once: Any) -> None:
    fn = respond if isinstance(once, Once) else respond_async
    with pytest.warns(
        OncewardWarning, match=r"respond\w* declares that it returns JSONResponse.*store_result=False"
    ) as seen:
        once(fn)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        once(store_result=False, name="not stored")(fn)


@dataclasses.dataclass
class Receipt:
    id: int


def test_a_usual_function_does_not_warn() -> None:
    def charge(order: int) -> Receipt | None:
        return None

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Once("memory://")(charge)
