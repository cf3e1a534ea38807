"""A backlog of statements, and its way through a queue into the warehouse: in batches, with its progress shown."""

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
from examples.learning.memory import QUARTERS, Memory
from examples.learning.place import opened
from onceward.imports.progress import Progress, bar
from onceward.queues.redis_streams import RedisStreamQueue

GROUP = "learning"
REPEATED = 5  # every fifth message repeats an earlier one: 20 %
BETWEEN = 0.2  # seconds between two looks at how far it is
PIPELINE = 2_000
VERBS = ("launched", "answered", "completed", "passed")


class Drained(Struct, frozen=True):
    """What one run of the consumer did, and what there is afterwards."""

    statements: int
    parked: int
    messages: int
    seconds: float
    cpu_seconds: float
    peak_mib: list[int]
    """The most memory so far, at the end of each quarter of the way."""

    resident_mib: list[int]
    """What it mostly was in each quarter: the middle one of all looks."""


def statements(size: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """So many, all of them from the seed; every fifth repeats an earlier one, in another spelling."""
    dice = random.Random(seed)
    for number in range(size):
        if number % REPEATED == REPEATED - 1:
            yield respelt(statement(dice.randrange(number)), dice)
        else:
            yield statement(number)


def statement(number: int) -> dict[str, Any]:
    """The statement of this number; if a fifth one is asked for, the one before it: those are the repeats.

    Ids are in no order, as those of real statements.
    """
    number -= number % REPEATED == REPEATED - 1
    minute, second = divmod(number, 60)
    return {
        "id": str(UUID(bytes=hashlib.md5(b"%d" % number, usedforsecurity=False).digest(), version=4)),
        "actor": {"mbox": f"mailto:learner{number % 500}@example.com", "name": f"Learner {number % 500}"},
        "verb": {"id": f"http://adlnet.gov/expapi/verbs/{VERBS[number % 4]}", "display": {"en": VERBS[number % 4]}},
        "object": {"id": f"https://example.com/courses/{number % 40}", "definition": {"name": {"en": "A course"}}},
        "result": {"score": {"scaled": number % 100 / 100}, "duration": f"PT{number % 60 + 1}M"},
        "timestamp": f"2026-03-{minute // 1440 % 28 + 1:02}T{minute // 60 % 24:02}:{minute % 60:02}:{second:02}Z",
    }


def respelt(told: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """The same statement in other words."""
    changed = {**told, "verb": {"id": told["verb"]["id"]}, "object": {"id": told["object"]["id"]}}
    if dice.random() < 0.5:
        changed["timestamp"] = told["timestamp"].replace("Z", ".000+00:00")
    return changed


def fill(url: str, stream: str, size: int) -> None:
    """Put the backlog into a stream of Redis."""
    import redis

    client = redis.Redis.from_url(url)
    pipe = client.pipeline(transaction=False)
    for number, one in enumerate(statements(size), 1):
        pipe.xadd(stream, {"body": msgspec.json.encode(one)})
        if number % PIPELINE == 0 or number == size:
            pipe.execute()
    client.close()


class Source(Struct, frozen=True):
    """A stream of Redis: how many statements there are in all, and how they are taken."""

    url: str
    stream: str
    size: int
    largest: int = 2_000
    ack_deadline: float = 30.0


def drain(folder: Path, source: Source, tell: Callable[[str], None]) -> Drained:
    """Consume until nothing is left, in this process; what a run before has left half done is among it."""
    return asyncio.run(_connected(folder, source, tell))


async def _connected(folder: Path, source: Source, tell: Callable[[str], None]) -> Drained:
    import redis.asyncio

    async with redis.asyncio.Redis.from_url(source.url) as client:
        await client.ping()  # if nobody is there it is said before any file is made
        return await _drain(folder, source, tell, client)


async def _drain(folder: Path, source: Source, tell: Callable[[str], None], client: Any) -> Drained:
    queue = RedisStreamQueue(source.url, stream=source.stream, group=GROUP, ack_deadline=source.ack_deadline)
    size, started, memory = source.size, time.monotonic(), Memory()
    with opened(folder) as place:
        app = consumer(place.learning, queue, place.once, largest=source.largest)
        consuming = asyncio.create_task(app.consume())
        begun: int | None = None
        while not consuming.done():
            left = await _left(client, source.stream)
            if left is not None:
                done = size - left
                begun = done if begun is None else begun
                memory.look(min(QUARTERS * done // size, QUARTERS - 1))
                seconds = time.monotonic() - started
                tell(bar(Progress(source.stream, done, done, size, seconds, done - begun, begun)))
            if left == 0:
                app.stop()
                break
            await asyncio.sleep(BETWEEN)
        await consuming
        counted = place.learning.house.query("SELECT count(*) FROM statements")[0][0]
    return Drained(
        statements=counted,
        parked=place.once.counts.get("parked", 0),
        messages=size - (begun or 0),
        seconds=time.monotonic() - started,
        cpu_seconds=time.process_time(),
        peak_mib=memory.peaks(),
        resident_mib=memory.middles(),
    )


async def _left(client: Any, stream: str) -> int | None:
    """What nobody has acknowledged; None before there is a group."""
    groups = [one for one in await client.xinfo_groups(stream) if one["name"] == GROUP.encode()]
    return groups[0]["pending"] + (groups[0]["lag"] or 0) if groups else None
