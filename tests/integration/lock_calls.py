"""Locks of either colour, called as blocking code."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from onceward.protocol.operation_names import LOCK
from onceward.protocol.record import Record
from tests.faces import Face


class Owned:
    """A lock of either colour that is held, called as blocking code."""

    def __init__(self, face: Face, lock: Any) -> None:
        self._face = face
        self._lock = lock

    def release(self) -> None:
        self._face._wait(self._lock.release())

    def __getattr__(self, name: str) -> Any:  # token, taken_over, held, name, check: never awaited
        return getattr(self._lock, name)


def acquire(face: Face, name: Any = "sync", **settings: Any) -> Owned:
    """Held by whoever calls this, in a context of its own: as another process would."""
    lock = face.once.lock(name, **settings)
    if face.colour == "blocking":
        return Owned(face, contextvars.Context().run(lock.acquire))
    return Owned(face, face._wait(lock.acquire()))


def try_lock(face: Face, name: Any = "sync", **settings: Any) -> Owned | None:
    lock = face._wait(face.once.try_lock(name, **settings))
    return None if lock is None else Owned(face, lock)


@contextlib.contextmanager
def locked(face: Face, name: Any = "sync", *, block: Any = None, **settings: Any) -> Iterator[Any]:
    """The block of a lock."""
    block = block or face.once.lock(name, **settings)
    context = contextvars.copy_context()
    lock = face._enter(block, context)
    variables = [(variable, variable.set(value)) for variable, value in context.items()]
    try:
        yield Owned(face, lock)
    except BaseException as error:
        face._leave(block, context, error)
        raise
    else:
        face._leave(block, context, None)
    finally:
        for variable, token in variables:
            variable.reset(token)


def record_of(face: Face, name: Any = "sync") -> Record:
    entry = face.read(name, name=LOCK)
    record: Record = entry.record
    return record
