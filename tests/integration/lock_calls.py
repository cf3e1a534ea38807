"""Locks of the sync and async client, called as blocking code."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from onceward.protocol.operation_names import LOCK
from onceward.protocol.record import Record
from tests.clients import SyncClient


class BlockingLock:
    """An acquired lock of the sync or async client, called as blocking code."""

    def __init__(self, client: SyncClient, lock: Any) -> None:
        self._client = client
        self.lock = lock

    def release(self) -> None:
        self._client.wait(self.lock.release())

    def __getattr__(self, name: str) -> Any:  # token, taken_over, held, name, check: never awaited
        return getattr(self.lock, name)


def acquire(client: SyncClient, name: Any = "sync", **settings: Any) -> BlockingLock:
    """Acquire the lock in a separate context, as another process would."""
    lock = client.once.lock(name, **settings)
    if client.mode == "blocking":
        return BlockingLock(client, contextvars.Context().run(lock.acquire))
    return BlockingLock(client, client.wait(lock.acquire()))


def try_lock(client: SyncClient, name: Any = "sync", **settings: Any) -> BlockingLock | None:
    lock = client.wait(client.once.try_lock(name, **settings))
    return None if lock is None else BlockingLock(client, lock)


@contextlib.contextmanager
def locked(client: SyncClient, name: Any = "sync", *, block: Any = None, **settings: Any) -> Iterator[Any]:
    """Hold the lock for the duration of a `with` block."""
    block = block or client.once.lock(name, **settings)
    context = contextvars.copy_context()
    lock = client.enter(block, context)
    variables = [(variable, variable.set(value)) for variable, value in context.items()]
    try:
        yield BlockingLock(client, lock)
    except BaseException as error:
        client.leave(block, context, error)
        raise
    else:
        client.leave(block, context, None)
    finally:
        for variable, token in variables:
            variable.reset(token)


def record_of(client: SyncClient, name: Any = "sync") -> Record:
    entry = client.read(name, name=LOCK)
    record: Record = entry.record
    return record
