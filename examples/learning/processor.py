"""Processes statements from Pub/Sub into a warehouse: `python -m examples.learning process`.

Each pull becomes one merge. A statement that is already stored is logged, skipped and acknowledged. If the merge fails,
nothing is acknowledged, and Pub/Sub delivers the messages again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from examples.learning.consumer import consumer
from examples.learning.storage import open_storage
from onceward.queues.process import run_all
from onceward.queues.pubsub import PubSubQueue


class Processing(Struct, frozen=True):
    """Where statements come from, and where they and their users are stored."""

    subscription: str
    """`projects/{project}/subscriptions/{name}`"""

    warehouse: str
    users: str = ""
    """The database of users, if several processes share it; by default files in `folder`."""

    folder: Path = Path()
    ack_deadline: int | None = None
    largest: int = 1_000
    lenient: bool = False


def process(chosen: Processing, report: Callable[[str], None]) -> None:
    """Process messages until SIGTERM or Ctrl-C, then finish those in flight."""
    queue = PubSubQueue(chosen.subscription, ack_deadline=chosen.ack_deadline)
    with open_storage(chosen.folder, chosen.warehouse, users=chosen.users) as storage:
        report(f"processing {chosen.subscription} into {storage.learning.house.name}")
        app = consumer(storage.learning, queue, storage.once, largest=chosen.largest, lenient=chosen.lenient)
        run_all([app], report)
