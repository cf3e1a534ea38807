"""What the tests of the learning records share: their storage, and a bus that publishes and consumes statements."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.learning.consumer import consumer
from examples.learning.records import Learning
from examples.learning.storage import Storage, open_storage
from onceward import Once, StoreUnavailable
from onceward.people import Person
from onceward.queues import MemoryQueue
from onceward.stores import MemoryStore
from onceward.testing.queues.base import wait_until
from tests.learning.backends import server_of

ROOT = Path(__file__).resolve().parents[2]
CSV = "Email,Team\njohn@example.com,UVM"


@pytest.fixture(params=["duckdb", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    with open_storage(tmp_path, server_of(request)) as place:
        yield place


@pytest.fixture
def learning(place: Storage) -> Learning:
    return place.learning


class Bus:
    """Publishes statements and consumes them."""

    def __init__(self, learning: Learning, *, lenient: bool = False) -> None:
        self.lenient = lenient
        self.queue = MemoryQueue("statements")
        self.once = Once(MemoryStore())
        self._learning = learning

    def publish(self, *statements: Any) -> None:
        """Publish each as a message; return when all of them are settled."""
        for one in statements:
            self.queue.put(json.dumps(one).encode())
        asyncio.run(self.consumed())

    async def consumed(self, rounds: int | None = None) -> None:
        """Consume everything, or until each message was delivered `rounds` times."""
        app = consumer(self._learning, self.queue, self.once, lenient=self.lenient)
        app.poll_timeout = 0.02
        task = asyncio.create_task(app.consume())
        await wait_until(
            lambda: len(self.queue) == 0 if rounds is None else self.once.counts.get("delivered_later", 0) >= rounds
        )
        app.stop()
        await task


@pytest.fixture
def bus(learning: Learning) -> Bus:
    return Bus(learning)


def rows(learning: Learning, sql: str) -> list[tuple[Any, ...]]:
    return learning.house.query(sql)


def count(learning: Learning) -> int:
    number: int = rows(learning, "SELECT count(*) FROM statements")[0][0]
    return number


def import_csv(learning: Learning, folder: Path, content: str, name: str = "users.csv") -> Any:
    file = folder / name
    file.write_text(content, encoding="utf-8")
    return learning.import_users(file)


def user(learning: Learning, email: str = "john@example.com") -> Person:
    found = learning.people.find(email=email)
    assert found is not None
    return found


@pytest.fixture
def lenient(learning: Learning) -> Bus:
    return Bus(learning, lenient=True)


def published(learning: Learning) -> list[tuple[Any, ...]]:
    """Return the users in the warehouse: id, sources and CSV data."""
    found = rows(learning, "SELECT user_id, sources, csv_data FROM users WHERE merged_into IS NULL ORDER BY user_id")
    return [(id, *(json.loads(one) if isinstance(one, str) else one for one in others)) for id, *others in found]


def failing(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable("it is away")
