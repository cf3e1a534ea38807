"""A `LatestState` of trucks on every store, sync and async, and histories of it."""

from __future__ import annotations

import datetime as dt
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from onceward.latest import Ordering, deleted
from onceward.protocol.ports import Store
from onceward.stores import MemoryStore
from onceward.stores.redis import RedisStore
from onceward.stores.sqlite import SQLiteStore
from onceward.testing import FakeClock
from tests.clients import Backend, SyncClient, make_backend
from tests.servers.redis import shared


class BlockingState:
    """A `LatestState`, sync or async, called as blocking code."""

    def __init__(self, client: SyncClient, *what: Any, **choices: Any) -> None:
        self._client = client
        self.state = client.once.state(*(what or ("trucks",)), **choices)

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.state, name)
        return lambda *args, **kwargs: self._client.wait(verb(*args, **kwargs))


@pytest.fixture(params=["memory", "sqlite", "postgres", "valkey"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    """Every store that keeps the latest state: the rule is written once in Python and once in Lua."""
    return make_backend(request, tmp_path, clock)


@pytest.fixture
def trucks(client: SyncClient) -> BlockingState:
    return BlockingState(client)


def at(minute: int, **more: Any) -> Ordering:
    """Return a position on the last day of 2025, which is yesterday for the clock of these tests."""
    return Ordering(dt.datetime(2025, 12, 31, 12, minute, tzinfo=dt.UTC), **more)


EVENTS = st.tuples(
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, "2025-12-31T12:00:00Z", "2025-12-31T13:00:00+01:00", "2025-12-31T12:00:01Z"]),
    st.none() | st.integers(-1, 1),
    st.none() | st.sampled_from(["2025-12-31T12:00:00Z"]),
    st.booleans(),
    st.sampled_from([0, "0", None, deleted]),
    st.none(),
)
REPUBLISHED = st.builds(
    lambda entity, published, has_id, id: (
        entity, f"2025-12-31T12:00:0{id % 2}Z", 10 + id, published, has_id, [deleted, "0", 0][id], id,
    ),
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, "2025-12-31T12:00:00Z", "2025-12-31T12:00:09Z"]),
    st.booleans(),
    st.integers(0, 2),
)  # fmt: skip
"""Events with an id, which have the same content in each of their messages."""

HISTORY = st.lists(EVENTS | REPUBLISHED, min_size=1, max_size=8)


def an_empty_store(kind: str) -> Store:
    if kind == "valkey":
        return RedisStore(shared().url(), prefix=f"an empty store/{next(stores)}")
    return MemoryStore() if kind == "memory" else SQLiteStore(":memory:")


stores = count()


def current(state: Any, entity: str) -> Any:
    """Return the state for comparison, without the transport fields of an event that is published several times."""
    found = state.read(entity)
    if found is None:
        return None
    ordering = found.ordering
    if (ordering.sequence or 0) >= 10:  # the message that arrives first is accepted
        ordering = Ordering(ordering.event_time, ordering.sequence)
    return ordering, found.value, type(found.value), found.deleted


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "onceward")
