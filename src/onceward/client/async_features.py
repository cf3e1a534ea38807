"""Locks, latest states, schedules, sagas and recovery: the async methods of `AsyncOnce`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from typing import Any, Unpack, overload

from onceward.latest.api import AsyncLatestState
from onceward.locks.api import AsyncHeldLock, AsyncLock, lock_job, try_acquire_async
from onceward.operations.decorator import T
from onceward.operations.job_builder import is_quick
from onceward.operations.operation import KeySource, TenantSource
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.latest import LatestStateOptions
from onceward.protocol.policy import SECOND, OnLost
from onceward.recovery.decision import Recovery
from onceward.recovery.deliveries import sweeper
from onceward.recovery.sweeper import OnRecovered
from onceward.runtime.aio import AsyncWorkerPool
from onceward.sagas.api import AsyncSaga, SagaChoices
from onceward.sagas.definition import Step
from onceward.schedules.api import (
    AsyncScheduled,
    AsyncScheduleDecorator,
    AsyncTickBlock,
    read_pattern,
    runners,
    schedule_decorator,
)
from onceward.schedules.definition import TickChoices
from onceward.schedules.runner import OnResult, run_loop

from .base import BaseClient


class AsyncFeatures(BaseClient):
    """The methods of `AsyncOnce` that lock, keep latest states, run schedules and sagas, and recover calls."""

    def lock(
        self, name: Any, *, lease: Duration | None = None, wait: Duration | None = None, on_lost: OnLost = "notify"
    ) -> AsyncLock:
        """Hold a lock: `async with once.lock("sync", lease="30s") as lock:`. Wait up to `wait` for it."""
        job = functools.partial(lock_job, self, name, lease, wait, on_lost)
        return AsyncLock(self.engine, job() if is_quick(name) else job)

    async def try_lock(
        self, name: Any, *, lease: Duration | None = None, on_lost: OnLost = "notify"
    ) -> AsyncHeldLock | None:
        """Return the lock, or None if another owner holds it. Use it as a `with` block, or call `release()`."""
        return await try_acquire_async(self.lock(name, lease=lease, wait=0, on_lost=on_lost))

    @overload
    def state(self, name: str, type: type[T], **choices: Unpack[LatestStateOptions]) -> AsyncLatestState[T]: ...
    @overload
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> AsyncLatestState[Any]: ...
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> AsyncLatestState[Any]:
        """Keep the latest value of each entity, in whatever order the events arrive.

        `type` is the type of the values. Duplicates are recognised for `window` ("7d"), and deleted entities remembered
        for `keep_deleted` ("30d"). An event more than `max_clock_skew` ("5m") ahead of the store's clock is `Parked`.
        """
        return AsyncLatestState(self, name, type, **choices)

    def schedule(
        self, pattern: str, *, tz: str = "UTC", name: str | None = None, **choices: Unpack[TickChoices]
    ) -> AsyncScheduleDecorator:
        """Declare a schedule: `@once.schedule("*/5 8-18 * * 1-6")`. `onceward schedule` runs each slot once."""
        decorator: AsyncScheduleDecorator = schedule_decorator(
            self, AsyncScheduled, read_pattern(pattern, tz), name, choices
        )
        return decorator

    def tick(
        self,
        name: str,
        scheduled_at: datetime | str | None = None,
        *,
        pattern: str | None = None,
        tz: str = "UTC",
        rerun: bool = False,
        **choices: Unpack[TickChoices],
    ) -> AsyncTickBlock:
        """Run one slot that an external scheduler triggers: `async with once.tick("report", scheduled_at):`."""
        return AsyncTickBlock(self, name, scheduled_at, choices, pattern=pattern, tz=tz, rerun=rerun)

    async def run_schedules(self, *, on_result: OnResult | None = None) -> None:
        """Run the declared schedules when they are due, until `stop()`. Then wait for running slots to finish.

        `on_result` is called with a `Ran` for each slot that ran in this process, and a `Missed` for skipped slots.
        """
        await run_loop(self.engine, runners(self, on_result), AsyncWorkerPool())

    def saga(
        self,
        name: str,
        *steps: Step,
        input_type: Callable[..., Any] | None = None,
        key: KeySource = None,
        version: str | int | None = None,
        tenant: TenantSource = None,
        **choices: Unpack[SagaChoices],
    ) -> AsyncSaga:
        """Declare a saga: in the end, either all of its steps are done, or all are undone.

        `once.saga("order", Step("charge", charge, undo=refund))`. Call it with its input as keyword arguments;
        `input_type` is a function or class with these parameters.
        """
        return AsyncSaga(self, name, steps, input_type, choices, key=key, version=version, tenant=tenant)

    async def recover(self, *, every: Duration | None = None, on_result: OnRecovered | None = None) -> Recovery:
        """Finish interrupted calls of operations with `store_input=True` that are not redelivered. Return the counts.

        It returns when nothing is due. With `every`, it repeats at that interval until `stop()`. `on_result` is called
        with a `Recovered` for each record that it handled, and for each pass in which the store failed.
        """
        worker = sweeper(self, on_result)
        if every is None:
            return await worker.until_idle()
        return await worker.until_stopped(AsyncWorkerPool(), microseconds(every, "every") / SECOND)
