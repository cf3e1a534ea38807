"""Deliver one history in random order: `python -m tests.integration.redis_deliverer URL MODE NUMBER`.

If the store fails, the batch is delivered again, as a broker would. Prints a line for each batch that got an answer,
and at the end how many messages were new.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any

from onceward import AsyncOnce, Once
from onceward.errors import StoreError
from onceward.latest import Ordering, StateEvent, deleted

SIZE = 10
PAUSE = 0.01  # seconds until a broker delivers again
LEASE = "3s"

HISTORY: list[StateEvent[Any]] = [
    StateEvent(
        f"truck {n % 7}",
        Ordering("2025-12-31T12:00Z", n % 13 or None, None, f"m{n}"),
        deleted if n % 17 == 0 else n,
        event_id=f"e{n // 2}" if n % 5 == 0 else None,
    )
    for n in range(400)
]


def batches(number: int) -> Iterator[list[StateEvent[Any]]]:
    mine = Random(number).sample(HISTORY, len(HISTORY))
    for start in range(0, len(mine), SIZE):
        yield mine[start : start + SIZE]


def report(outcomes: list[Any]) -> int:
    print("answered", flush=True)
    return sum(not outcome.replayed for outcome in outcomes)


def deliver(url: str, number: int) -> int:
    new = 0
    with Once(url, lease=LEASE) as once:
        for batch in batches(number):
            while True:
                try:
                    new += report(once.state("trucks").apply_many(batch))
                    break
                except StoreError:
                    time.sleep(PAUSE)
    return new


async def deliver_on_a_loop(url: str, number: int) -> int:
    new = 0
    async with AsyncOnce(url, lease=LEASE) as once:
        for batch in batches(number):
            while True:
                try:
                    new += report(await once.state("trucks").apply_many(batch))
                    break
                except StoreError:
                    await asyncio.sleep(PAUSE)
    return new


if __name__ == "__main__":
    where, mode, name = sys.argv[1:]
    print(deliver(where, int(name)) if mode == "blocking" else asyncio.run(deliver_on_a_loop(where, int(name))))
