"""What of this call chain is inside a transaction of its caller's: blocks, and the jobs that are at work there.

Apart from `current()`: such a job has no lease, and nothing to complete or to annotate before its caller commits.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from onceward.protocol.capabilities import JoinedStore

from .engine import Engine
from .job import Job


class JoinedCall(Protocol):
    """One of them, and the one around it."""

    engine: Engine
    job: Job
    closed: bool

    @property
    def outer(self) -> JoinedCall | None: ...


class Block(Protocol):
    """A transaction that we have joined, and the one around it."""

    engine: Engine
    store: JoinedStore
    closed: bool

    @property
    def outer(self) -> Block | None: ...


current_block: ContextVar[Block | None] = ContextVar("onceward_joined_block", default=None)
current_job: ContextVar[JoinedCall | None] = ContextVar("onceward_joined_job", default=None)


def is_in_joined_job(engine: Engine, id: bytes) -> bool:
    """Whether one of them works under that key in that store: its claim stands until its caller's transaction ends."""
    one = current_job.get()
    while one is not None:
        if not one.closed and one.job.key.id == id and one.engine.heartbeat is engine.heartbeat:
            return True
        one = one.outer
    return False


def enclosing_block() -> Block | None:
    """The innermost block that was not left yet: where one was left in another context, this one does not know."""
    one = current_block.get()
    while one is not None and one.closed:
        one = one.outer
    return one


def blocks_itself(engine: Engine) -> bool:
    """Whether a transaction that this call chain has open keeps that store from writing for us."""
    one = enclosing_block()
    while one is not None:
        if not one.closed and one.engine.heartbeat is engine.heartbeat and one.store.blocks_writes():
            return True
        one = one.outer
    return False
