"""Record the results of async work in batches: one store call for all results that are ready at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from onceward.engine.abandon import abandon
from onceward.engine.attempt import Attempt
from onceward.engine.conclude import settle_raised, settle_returned
from onceward.engine.engine import Engine
from onceward.engine.runner import call_handler
from onceward.protocol.outcome import Outcome

from .claims import Unrecorded, batchable_result, record_together
from .client_calls import is_cancelled
from .message import Delivery
from .settlement import DeliveryResult, is_done

Settle = Callable[[Delivery, DeliveryResult], Coroutine[Any, Any, None]]
"""Called with a delivery and its result; settles the delivery at the broker."""

UNEXPECTED_CANCELLATION = "the work raised CancelledError, but the consumer did not cancel it"


class ResultBatch:
    """The results of one batch. Those that become ready during a store call are recorded together in the next one.

    `acknowledge` does synchronously what `settle` would do with a delivery that is done, as nearly all are.
    """

    def __init__(self, engine: Engine, settle: Settle, acknowledge: Callable[[Delivery], None]) -> None:
        self._engine = engine
        self._settle = settle
        self._acknowledge = acknowledge
        self._ready: list[tuple[Delivery, Unrecorded]] = []
        self.not_started: set[Attempt] = set()
        """Claimed attempts whose task has not started yet. If it never starts, `recover` ends the claim."""

        self._recording = False

    async def run(self, delivery: Delivery, attempt: Attempt, group: asyncio.TaskGroup) -> None:
        """Run the attempt in this task, and have its result recorded."""
        outcome: Unrecorded | Outcome[Any] | Exception
        self.not_started.discard(attempt)
        try:
            try:
                attempt.__enter__()  # until the end of this task
                attempt.begin()
                value = call_handler(attempt.job)
                if hasattr(value, "__await__"):
                    value = await value
            except BaseException as error:  # noqa: BLE001 (whatever was raised, the claim must be settled)
                outcome = await settle_raised(attempt, error)
            else:
                outcome = batchable_result(attempt, value) or await settle_returned(attempt, value)
        except BaseException as error:  # noqa: BLE001 (raised again if it ends this task)
            await abandon([attempt], error)
            outcome = _error_as_result(error)
        if not isinstance(outcome, Unrecorded):
            await self._settle(delivery, outcome)
            return
        self._ready.append((delivery, outcome))
        if not self._recording:
            self._recording = True
            group.create_task(self._record())

    async def _record(self) -> None:
        while self._ready:
            await asyncio.sleep(0)  # results from the same event loop iteration arrive a few steps later
            ready, self._ready = self._ready, []
            outcomes = await record_together(self._engine, [unrecorded for _, unrecorded in ready])
            for (delivery, _), outcome in zip(ready, outcomes, strict=True):
                if is_done(outcome):
                    self._acknowledge(delivery)
                else:
                    await self._settle(delivery, outcome)
        self._recording = False

    async def recover(self, error: BaseException) -> None:
        """Settle the remaining claims if the batch ends early: record results, and release work that has not started.

        A task that is cancelled before its first step never starts, so its claim is released here.
        """
        ready, self._ready = self._ready, []
        if ready and not isinstance(error, GeneratorExit):
            await record_together(self._engine, [unrecorded for _, unrecorded in ready])
        await abandon([*self.not_started, *(unrecorded.attempt for _, unrecorded in ready)], error)


def _error_as_result(error: BaseException) -> Exception:
    """Return the error as a result, or raise it if it ends this task.

    It is an error of the store or of this process: what the handler raises is already an outcome.
    """
    if isinstance(error, asyncio.CancelledError) and not is_cancelled():
        return RuntimeError(UNEXPECTED_CANCELLATION)
    if not isinstance(error, Exception):
        raise error
    return error
