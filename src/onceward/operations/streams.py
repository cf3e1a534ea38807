"""Iterate over many items: `once.imap`, sync and async. Items are read as they are needed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sized
from itertools import islice
from typing import Any

from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.engine.many import batch_size
from onceward.engine.stream import LOOK_AHEAD, Chunk, ItemOutcome, OutcomeStream
from onceward.runtime.threads import run

from .job_builder import jobs_of
from .operation import Operation

MakeJob = Callable[[tuple[Any, ...], dict[str, Any]], Job | Exception]


def iterate(
    engine: Engine, items: Iterable[Any], operation: Operation, make: MakeJob
) -> Generator[ItemOutcome[Any, Any], None, None]:
    """Yield what happened to each item, as soon as it is known."""
    remaining, size = iter(items), _chunk_size(operation)

    async def read() -> Chunk:
        return [(item, make((item,), {})) for item in islice(remaining, size)]

    stream = OutcomeStream(engine, read, _length(items))
    try:
        while (found := run(stream.next())) is not None:
            yield found
    finally:
        run(stream.close())


async def iterate_async(
    engine: Engine, items: Iterable[Any], operation: Operation, make: MakeJob
) -> AsyncGenerator[ItemOutcome[Any, Any], None]:
    """Yield what happened to each item, as soon as it is known."""
    remaining, size = iter(items), _chunk_size(operation)

    async def read() -> Chunk:
        chunk = list(islice(remaining, size))
        return list(zip(chunk, await jobs_of(engine.runtime, chunk, operation, make), strict=True))

    stream = OutcomeStream(engine, read, _length(items))
    try:
        while (found := await stream.next()) is not None:
            yield found
    finally:
        await stream.close()


def _chunk_size(operation: Operation) -> int:
    return min(LOOK_AHEAD, batch_size(operation.policy))


def _length(items: Iterable[Any]) -> int | None:
    return len(items) if isinstance(items, Sized) else None
