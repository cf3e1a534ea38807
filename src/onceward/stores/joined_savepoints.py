"""What stores inside a caller's transaction share: the verbs, and savepoints that Django and SQLAlchemy know about."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import count
from typing import Any, Final

from onceward.protocol import transitions
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, Renewal

from .caller_connection import SessionSavepoint
from .django_savepoint import django_savepoint

END_TIMEOUT: Final = 30.0
"""Seconds for the statements that end a savepoint."""

_numbers = count(1)


def new_savepoint() -> str:
    """Return a name that no other savepoint of this process has."""
    return f"onceward_{next(_numbers)}"


class JoinedVerbs:
    """The verbs of a store inside the caller's transaction."""

    exclusive = False
    number: str | None = None
    _apply_each: Callable[..., Awaitable[list[Answer]]]

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return await self._apply_each(transitions.claim, requests, timeout)

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        """Renew inside the transaction. This is needed only if the transaction blocks the writes of the heartbeat."""
        return await self._apply_each(transitions.renew, renewals, timeout)

    async def settle(self, settlements: Sequence[AnySettlement], *, timeout: float) -> list[Answer]:
        return await self._apply_each(transitions.settle, settlements, timeout)

    def is_lost(self) -> bool:
        return False

    def blocks_writes(self) -> bool:
        return False


class JoinedSavepoints(JoinedVerbs):
    """Savepoints on the caller's connection."""

    _enter: Callable[..., Awaitable[None]]
    """Ensures that the transaction is open. Raises at the deadline."""
    _is_same: Callable[..., Awaitable[bool]]
    """Returns whether the transaction is still the same. If an error has aborted it, returns `if_failed`."""
    _run_commands: Callable[..., Awaitable[bool]]
    """Executes commands. Returns False if a savepoint does not exist any more, because its transaction has ended."""

    def __init__(self, wrapper: Any) -> None:
        self._session = SessionSavepoint(wrapper)
        self._django = django_savepoint(wrapper)
        self._savepoints: list[str] = []

    async def begin(self, *, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        await self._enter(deadline)
        if self._django is not None:
            async with self._closed_at(deadline):
                self._django.begin()
            return
        await self._in_session(self._session.flush, deadline)
        savepoint = new_savepoint()
        await self._run_commands(deadline, f"SAVEPOINT {savepoint}")
        self._savepoints.append(savepoint)
        await self._in_session(self._session.begin, deadline)

    async def keep(self) -> bool:
        """Release the savepoint. If this fails, `undo` still works."""
        deadline = time.monotonic() + END_TIMEOUT
        if self._django is not None:
            async with self._closed_at(deadline):
                return self._django.keep()
        released = False
        if await self._is_same():
            await self._in_session(self._session.commit, deadline)
            released = await self._run_commands(deadline, f"RELEASE SAVEPOINT {self._savepoints[-1]}")
        self._savepoints.pop()
        return released

    async def undo(self) -> bool:
        deadline = time.monotonic() + END_TIMEOUT
        if self._django is not None:
            async with self._closed_at(deadline):
                return self._django.undo()
        savepoint = self._savepoints.pop()
        if not await self._is_same(if_failed=True):
            return False
        await self._in_session(self._session.rollback, deadline)
        rollback, release = f"ROLLBACK TO SAVEPOINT {savepoint}", f"RELEASE SAVEPOINT {savepoint}"
        return await self._run_commands(deadline, rollback, release)

    async def _in_session(self, call: Callable[[], Awaitable[None]], deadline: float) -> None:
        """Let a SQLAlchemy Session send its statements."""
        if self._session.exists:
            async with self._closed_at(deadline):
                await call()

    def _closed_at(self, deadline: float) -> AbstractAsyncContextManager[None]:  # noqa: ARG002 (for subclasses whose statements wait)
        """Enforce the deadline in this block: statements of Django and SQLAlchemy have none of their own."""
        return nullcontext()
