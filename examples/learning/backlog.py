"""Consumes a backlog of statements from a queue into the warehouse, in batches, and shows the progress."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from examples.learning.consumer import consumer
from examples.learning.memory_usage import QUARTERS, MemoryUsage
from examples.learning.storage import open_storage
from onceward.imports.progress import Progress, bar
from onceward.queues.redis_streams import RedisStreamQueue

GROUP = "learning"
REPEAT_EVERY = 5  # 20 % of the messages repeat an earlier one
PROGRESS_INTERVAL = 0.2  # seconds
PIPELINE = 2_000
VERBS = ("launched", "answered", "completed", "passed")


class DrainResult(Struct, frozen=True):
    """What one run of the consumer did, and the totals afterwards."""

    statements: int
    parked: int
    messages: int
    seconds: float
    cpu_seconds: float
    peak_mib: list[int]
    """Peak memory so far, at the end of each quarter of the run."""

    resident_mib: list[int]
    """Median memory in each quarter of the run."""


def statements(size: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Generate this many statements from the seed. Every fifth repeats an earlier one, worded differently."""
    dice = random.Random(seed)
    for number in range(size):
        if number % REPEAT_EVERY == REPEAT_EVERY - 1:
            yield reworded(statement(dice.randrange(number)), dice)
        else:
            yield statement(number)


def statement(number: int) -> dict[str, Any]:
    """Return the statement of this number. Every fifth number is a repeat and returns the previous statement.

    Ids are not ordered, like those of real statements.
    """
    number -= number % REPEAT_EVERY == REPEAT_EVERY - 1
    minute, second = divmod(number, 60)
    return {
        "id": str(UUID(bytes=hashlib.md5(b"%d" % number, usedforsecurity=False).digest(), version=4)),
        "actor": {"mbox": f"mailto:learner{number % 500}@example.com", "name": f"Learner {number % 500}"},
        "verb": {"id": f"http://adlnet.gov/expapi/verbs/{VERBS[number % 4]}", "display": {"en": VERBS[number % 4]}},
        "object": {"id": f"https://example.com/courses/{number % 40}", "definition": {"name": {"en": "A course"}}},
        "result": {"score": {"scaled": number % 100 / 100}, "duration": f"PT{number % 60 + 1}M"},
        "timestamp": f"2026-03-{minute // 1440 % 28 + 1:02}T{minute // 60 % 24:02}:{minute % 60:02}:{second:02}Z",
    }


def reworded(original: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """Return an equal statement that is written differently."""
    changed = {**original, "verb": {"id": original["verb"]["id"]}, "object": {"id": original["object"]["id"]}}
    if dice.random() < 0.5:
        changed["timestamp"] = original["timestamp"].replace("Z", ".000+00:00")
    return changed


def fill(url: str, stream: str, size: int) -> None:
    """Put the backlog into a Redis stream."""
    import redis

    client = redis.Redis.from_url(url)
    pipe = client.pipeline(transaction=False)
    for number, one in enumerate(statements(size), 1):
        pipe.xadd(stream, {"body": msgspec.json.encode(one)})
        if number % PIPELINE == 0 or number == size:
            pipe.execute()
    client.close()


class Source(Struct, frozen=True):
    """A Redis stream: its total number of statements, and how to consume them."""

    url: str
    stream: str
    size: int
    largest: int = 2_000
    ack_deadline: float = 30.0


def drain(folder: Path, source: Source, report: Callable[[str], None]) -> DrainResult:
    """Consume in this process until the stream is empty, including what a previous run left unfinished."""
    return asyncio.run(_connect_and_drain(folder, source, report))


async def _connect_and_drain(folder: Path, source: Source, report: Callable[[str], None]) -> DrainResult:
    import redis.asyncio

    async with redis.asyncio.Redis.from_url(source.url) as client:
        await client.ping()  # fail before any file is created
        return await _drain(folder, source, report, client)


async def _drain(folder: Path, source: Source, report: Callable[[str], None], client: Any) -> DrainResult:
    queue = RedisStreamQueue(source.url, stream=source.stream, group=GROUP, ack_deadline=source.ack_deadline)
    size, started, memory = source.size, time.monotonic(), MemoryUsage()
    with open_storage(folder) as storage:
        app = consumer(storage.learning, queue, storage.once, largest=source.largest)
        consuming = asyncio.create_task(app.consume())
        first_done: int | None = None
        while not consuming.done():
            left = await _remaining(client, source.stream)
            if left is not None:
                done = size - left
                first_done = done if first_done is None else first_done
                memory.sample(min(QUARTERS * done // size, QUARTERS - 1))
                seconds = time.monotonic() - started
                report(bar(Progress(source.stream, done, done, size, seconds, done - first_done, first_done)))
            if left == 0:
                app.stop()
                break
            await asyncio.sleep(PROGRESS_INTERVAL)
        await consuming
        counted = storage.learning.house.query("SELECT count(*) FROM statements")[0][0]
    return DrainResult(
        statements=counted,
        parked=storage.once.counts.get("parked", 0),
        messages=size - (first_done or 0),
        seconds=time.monotonic() - started,
        cpu_seconds=time.process_time(),
        peak_mib=memory.peaks(),
        resident_mib=memory.medians(),
    )


async def _remaining(client: Any, stream: str) -> int | None:
    """Return how many messages are not acknowledged, or None before the group exists."""
    groups = [one for one in await client.xinfo_groups(stream) if one["name"] == GROUP.encode()]
    return groups[0]["pending"] + (groups[0]["lag"] or 0) if groups else None
