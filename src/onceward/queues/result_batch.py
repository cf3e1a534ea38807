"""The results of async work, recorded together: one call to the store for those that are ready at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from onceward.engine.attempt import Attempt
from onceward.engine.deliver import Unrecorded, begin_apart, plain_result, record_together
from onceward.engine.ending import after_error, after_value
from onceward.engine.engine import Engine
from onceward.engine.interrupted import recover
from onceward.protocol.outcome import Outcome

from .broker import is_cancelled
from .message import Delivery
from .settlement_rule import Result, is_done

Settle = Callable[[Delivery, Result], Coroutine[Any, Any, None]]
"""Told what a delivery led to; says to the broker what becomes of it."""

CANCELLED_ITSELF = "the work ended in a cancellation that nobody here asked for"


class Results:
    """Of one batch. What is ready while others are being recorded goes together, in the next call.

    `acknowledge` does at once what `settle` would do with a delivery that is done, as nearly all are.
    """

    def __init__(self, engine: Engine, settle: Settle, acknowledge: Callable[[Delivery], None]) -> None:
        self._engine = engine
        self._settle = settle
        self._acknowledge = acknowledge
        self._ready: list[tuple[Delivery, Unrecorded]] = []
        self._done: list[Attempt] = []  # all whose work has returned
        self._waiting: set[Attempt] = set()  # claimed, and given to a task that has not begun
        self._recording = False

    def waits(self, attempt: Attempt) -> None:
        """Its task is to begin soon. If it never does, nobody else knows of the claim."""
        self._waiting.add(attempt)

    def begins(self, attempt: Attempt) -> None:
        self._waiting.discard(attempt)

    async def of(self, delivery: Delivery, attempt: Attempt, group: asyncio.TaskGroup) -> None:
        """Run it, and see that its result is recorded.

        The handler's coroutine is awaited right here: with a hundred under way, one more around each is felt.
        """
        outcome: Unrecorded | Outcome[Any] | Exception
        self._waiting.discard(attempt)
        try:
            try:
                value = begin_apart(attempt)
                if hasattr(value, "__await__"):
                    value = await value
            except BaseException as error:  # noqa: BLE001 (whatever was raised, the claim must end)
                outcome = await after_error(attempt, error)
            else:
                outcome = plain_result(attempt, value) or await after_value(attempt, value)
        except BaseException as error:  # noqa: BLE001 (raised on, if it ends this task)
            await recover(self._engine, [attempt], error)
            outcome = _as_value(error)
        if not isinstance(outcome, Unrecorded):
            await self._settle(delivery, outcome)
            return
        self._ready.append((delivery, outcome))
        self._done.append(attempt)
        if not self._recording:
            self._recording = True
            group.create_task(self._record())

    async def _record(self) -> None:
        while self._ready:
            await asyncio.sleep(0)  # what came with the same look at the sockets is a few steps behind
            ready, self._ready = self._ready, []
            outcomes = await record_together(self._engine, [one for _, one in ready])
            for (delivery, _), outcome in zip(ready, outcomes, strict=True):
                if is_done(outcome):
                    self._acknowledge(delivery)
                else:
                    await self._settle(delivery, outcome)
        self._recording = False

    async def recover(self, error: BaseException) -> None:
        """We are leaving before all was recorded: what has returned is recorded now, quickly, or lapses.

        A task that is cancelled before its first step never begins, and leaves its claim to us.
        """
        await recover(self._engine, [*self._done, *self._waiting], error)


def _as_value(error: BaseException) -> Exception:
    """Trouble of the store, or of ours; what the handler raises is an outcome. What ends this task is raised on."""
    if isinstance(error, asyncio.CancelledError) and not is_cancelled():
        return RuntimeError(CANCELLED_ITSELF)
    if not isinstance(error, Exception):
        raise error
    return error
