"""Context variables for the transaction blocks (`within`) around this code, and the jobs that run in them.

Separate from `current()`: such a job has no lease, and cannot be completed or annotated before its caller commits.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from onceward.protocol.capabilities import JoinedStore

from .engine import Engine
from .job import Job


class JoinedCall(Protocol):
    """A job in the caller's transaction, and the job around it."""

    engine: Engine
    job: Job
    closed: bool

    @property
    def outer(self) -> JoinedCall | None: ...


class Block(Protocol):
    """A joined transaction, and the one around it."""

    engine: Engine
    store: JoinedStore
    closed: bool
    found: Any

    @property
    def outer(self) -> Block | None: ...


current_block: ContextVar[Block | None] = ContextVar("onceward_joined_block", default=None)
current_job: ContextVar[JoinedCall | None] = ContextVar("onceward_joined_job", default=None)


def is_in_joined_job(engine: Engine, id: bytes) -> bool:
    """Return whether a job around this code holds that key in that store, until its caller's transaction ends."""
    one = current_job.get()
    while one is not None:
        if not one.closed and one.job.key.id == id and one.engine.heartbeat is engine.heartbeat:
            return True
        one = one.outer
    return False


def enclosing_block() -> Block | None:
    """Return the innermost block that is still open. A block may have been closed in another context."""
    one = current_block.get()
    while one is not None and one.closed:
        one = one.outer
    return one


def blocks_itself(engine: Engine) -> bool:
    """Return whether an open transaction around this code blocks the store from writing for it."""
    one = enclosing_block()
    while one is not None:
        if not one.closed and one.engine.heartbeat is engine.heartbeat and one.store.blocks_writes():
            return True
        one = one.outer
    return False
