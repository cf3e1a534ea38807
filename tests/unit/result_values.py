"""Values of every kind that a result may have, and when two of them are the same."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import math
import pathlib
from typing import Any

from hypothesis import strategies as st

from onceward.results.result_type import ResultType

ANYTHING = ResultType()


def exactly(left: Any, right: Any) -> bool:
    """Return whether type and value are equal at every depth. NaN equals itself, 0.0 is not -0.0, dict order counts."""
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
