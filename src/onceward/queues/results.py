"""The results of async work, recorded together: one call to the store for those that are ready at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from onceward.core.deliver import Unrecorded, record_together, run_apart
from onceward.core.engine import Engine
from onceward.core.held import Held
from onceward.core.interrupted import recover
from onceward.model.outcome import Outcome

from .broker import is_cancelled
from .message import Delivery
from .rule import Result

Settle = Callable[[Delivery, Result], Coroutine[Any, Any, None]]
"""Told what a delivery led to; says to the broker what becomes of it."""

CANCELLED_ITSELF = "the work ended in a cancellation that nobody here asked for"


class Results:
    """Of one batch. What is ready while others are being recorded goes together, in the next call."""

    def __init__(self, engine: Engine, settle: Settle) -> None:
        self._engine = engine
        self._settle = settle
        self._ready: list[tuple[Delivery, Unrecorded]] = []
        self._done: list[Held] = []  # all whose work has returned
        self._recording = False

    async def of(self, delivery: Delivery, held: Held, group: asyncio.TaskGroup) -> None:
        """Run it, and see that its result is recorded."""
        outcome: Unrecorded | Outcome[Any] | Exception
        try:
            outcome = await run_apart(held)
        except Exception as error:  # noqa: BLE001 (of the store, or of ours; what the handler raises is an outcome)
            outcome = error
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            outcome = RuntimeError(CANCELLED_ITSELF)
        if not isinstance(outcome, Unrecorded):
            await self._settle(delivery, outcome)
            return
        self._ready.append((delivery, outcome))
        self._done.append(held)
        if not self._recording:
            self._recording = True
            group.create_task(self._record())

    async def _record(self) -> None:
        while self._ready:
            ready, self._ready = self._ready, []
            outcomes = await record_together(self._engine, [one for _, one in ready])
            for (delivery, _), outcome in zip(ready, outcomes, strict=True):
                await self._settle(delivery, outcome)
        self._recording = False

    async def recover(self, error: BaseException) -> None:
        """We are leaving before all was recorded: what has returned is recorded now, quickly, or lapses."""
        await recover(self._engine, self._done, error)
