"""A `LatestState` on PostgreSQL, and other clients that use it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

from onceward import Once
from onceward.latest import Ordering
from onceward.stores.postgres import PostgresStore
from tests.integration.postgres_connections import make_effects
from tests.raw_postgres import lock_first
from tests.servers.postgres import URL, execute

WEEK = 7 * 86_400 * 1_000_000

Event = tuple[str, Ordering, int]


class Stop(Exception):
    pass


@pytest.fixture
def store(schema: str) -> PostgresStore:
    make_effects(schema)
    return PostgresStore(os.environ[URL], schema=schema, migrate=True)


@pytest.fixture
def once(store: PostgresStore) -> Iterator[Once]:
    with Once(store) as once:
        once.read("open the store")
        yield once


@pytest.fixture
def trucks(once: Once) -> Any:
    return once.state("trucks")


def another(schema: str, **settings: Any) -> Once:
    return Once(PostgresStore(os.environ[URL], schema=schema), **settings)


def count(schema: str, table: str) -> int:
    return int(execute(f'SELECT count(*) FROM "{schema}".onceward_{table}')[0][0])


def deliver_concurrently(
    pool: int,
    turns: Sequence[int],
    client: Callable[[], Once],
    batch: Callable[[int, int, Random], list[Event]],
    lock_first_batches: int,
) -> list[tuple[Event, Any]]:
    """Let each worker of a pool deliver one batch per turn, simultaneously. Return every event and its outcome."""
    barrier = threading.Barrier(pool)
    errors: list[BaseException] = []
    outcomes: list[tuple[Event, Any]] = []

    def deliver(number: int) -> None:
        dice = Random(number)
        try:
            with client() as mine:
                state, store = mine.state("trucks"), mine.store
                state.get("open the store")
                for turn in turns:
                    lock_first(store, lock_first_batches)
                    events = batch(number, turn, dice)
                    barrier.wait(60)
                    outcomes.extend(zip(events, state.apply_many(events), strict=True))
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=deliver, args=(number,)) for number in range(pool)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(120)
    assert errors == []
    return outcomes


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "onceward")
