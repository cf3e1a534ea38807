"""One consumer process of the storm: `python -m tests.queues.worker KIND URL NAME DATABASE`."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

from onceward import Once, current_claim
from onceward.queues import Consumer
from tests.queues.adapters import adapter

ACK_DEADLINE = 2.0
LEASE = "2s"
"""Both short: what a killed worker had in hand is waited for."""


def consumer(kind: str, url: str, name: str, database: str) -> Consumer:
    """Return a consumer whose effect is a row, written together with the record."""
    once = Once(f"sqlite:///{database}?synchronous=normal", lease=LEASE)
    own = threading.local()

    @once(key="{event[id]}", name="book")
    def book(event: dict[str, Any]) -> None:
        if not hasattr(own, "connection"):
            own.connection = sqlite3.connect(database, timeout=30)
        with own.connection as connection:
            connection.execute("INSERT INTO effects VALUES (?)", (event["id"],))
            current_claim().complete_in(connection)

    queue = adapter(kind, url, name, dead_letters=False, ack_deadline=ACK_DEADLINE)
    return Consumer(book, queue, concurrency=10, first_delay="100ms", longest_delay="1s")


def is_ready(database: Path, pid: int) -> Path:
    """Return the file that exists once the worker handles SIGTERM."""
    return database.parent / f"ready-{pid}"


def run(worker: Consumer, database: Path) -> None:
    """Run it. It opens its queue when its signal handlers are installed."""
    open_queue = worker.queue.open

    async def open_when_ready() -> None:
        is_ready(database, os.getpid()).touch()
        await open_queue()

    setattr(worker.queue, "open", open_when_ready)  # noqa: B010 (mypy forbids the assignment)
    worker.run()


if __name__ == "__main__":
    run(consumer(*sys.argv[1:5]), Path(sys.argv[4]))
