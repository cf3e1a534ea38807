"""A replay is never of another type than the one that the function declares, whatever the store contains."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Protocol, TypedDict, TypeVar

import pytest

from onceward import Once
from onceward.errors import ResultCorrupt, ResultNotStored
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType, Unstorable

T = TypeVar("T")
UserId = NewType("UserId", int)


class Loose(Protocol):
    size: int


class Row(TypedDict):
    n: int


@dataclass
class Receipt:
    n: int


VALUES: list[Any] = [None, True, 7, 7.5, "text", b"bytes", [1], (1,), {"n": 1}, {1}, frozenset({1}), Decimal(1)]


@pytest.mark.finding("N42")
@pytest.mark.parametrize(
    ("annotation", "accepted"),
    [
        (list, {"list"}),
        (list[int], {"list"}),
        (list[int] | None, {"list", "NoneType"}),
        (Annotated[str, "a name"], {"str"}),
        (Literal["a", "b"], {"str"}),
        (UserId, {"int", "bool"}),
        (float, {"float", "int", "bool"}),
        (Row, {"dict"}),
        (None, {"NoneType"}),
        (Receipt, set()),
        (collections.abc.Sequence[int], {"list", "tuple", "str", "bytes"}),
        (collections.abc.Awaitable[list[int]], {"list"}),
        (Any, {type(value).__name__ for value in VALUES}),
        (object, {type(value).__name__ for value in VALUES}),
        (Loose, {type(value).__name__ for value in VALUES}),
        (T, {type(value).__name__ for value in VALUES}),
        (int | T, {type(value).__name__ for value in VALUES}),
    ],
)
def test_only_the_declared_type_is_stored_and_returned(annotation: Any, accepted: set[str]) -> None:
    anything, declared = ResultType(Any), ResultType(annotation)
    for value in VALUES:
        stored = anything.encode(value)
        if type(value).__name__ in accepted:
            assert declared.decode(declared.encode(value)) == value
            assert declared.decode(stored) == value
        else:
            with pytest.raises(Unstorable, match="declares"):
                declared.encode(value)
            with pytest.raises(Unstorable, match="declares"):
                declared.encode_all([value])
            with pytest.raises(ResultCorrupt, match="declares"):
                declared.decode(stored)


@pytest.mark.finding("N42")
def test_even_none_is_refused_where_it_is_not_declared() -> None:
    stored = Codec(ResultType(Any)).encode(None, b"id").data
    assert stored is not None
    with pytest.raises(ResultCorrupt, match="declares list"):
        Codec(ResultType(list)).decode(stored, b"id")
    assert Codec(ResultType(list | None)).decode(stored, b"id") is None


def test_a_function_that_contradicts_its_annotation_is_told_why_its_result_is_not_stored() -> None:
    with Once("memory://") as once:

        @once(key="k:{n}")
        def rows(n: int) -> list[int]:
            return (n,)  # type: ignore[return-value]

        assert isinstance(rows(1), tuple), "the work is done, and the first caller gets its result"
        with pytest.raises(ResultNotStored, match="tuple, but the return annotation declares list"):
            rows(1)
