"""The jobs of this call chain that are at work inside a transaction of their caller's.

Apart from `current()`: such a job has no lease, and nothing to complete or to annotate before its caller commits.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from .engine import Engine
from .job import Job


class Inside(Protocol):
    """One of them, and the one around it."""

    engine: Engine
    job: Job
    over: bool

    @property
    def outer(self) -> Inside | None: ...


innermost: ContextVar[Inside | None] = ContextVar("onceward_joined_job", default=None)


def is_inside(engine: Engine, id: bytes) -> bool:
    """Whether one of them works under that key in that store: its claim stands until its caller's transaction ends."""
    one = innermost.get()
    while one is not None:
        if not one.over and one.job.key.id == id and one.engine.keeper is engine.keeper:
            return True
        one = one.outer
    return False
