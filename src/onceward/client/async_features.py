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
        """Return a lock to hold while a block runs: `async with once.lock("sync", lease="30s") as lock:`.

        Args:
            name: What to lock. All processes that use the same store, app and tenant share the lock.
            lease: How long the lock outlives its owner after a crash. While the block runs, it is renewed. The default
                is the client's.
            wait: How long to wait for another owner. `0` does not wait. The default is the client's.
            on_lost: What happens if another owner takes over after the lease has expired: `"notify"` makes
                `lock.check()` raise, `"cancel"` also cancels the async task that holds the lock.

        Returns:
            The lock. Entering the block raises `AlreadyRunning`, or `StillRunning` after the wait, if another owner
            holds it.

        Raises:
            ConfigurationError: A duration cannot be read, or is negative.
        """
        job = functools.partial(lock_job, self, name, lease, wait, on_lost)
        return AsyncLock(self.engine, job() if is_quick(name) else job)

    async def try_lock(
        self, name: Any, *, lease: Duration | None = None, on_lost: OnLost = "notify"
    ) -> AsyncHeldLock | None:
        """Acquire the lock without waiting. Use the result as an async `with` block, or call `release()`.

        Args:
            name: What to lock.
            lease: How long the lock outlives its owner after a crash. The default is the client's.
            on_lost: `"notify"` or `"cancel"`, as for `lock`.

        Returns:
            The held lock, or None if another owner holds it.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        return await try_acquire_async(self.lock(name, lease=lease, wait=0, on_lost=on_lost))

    @overload
    def state(self, name: str, type: type[T], **choices: Unpack[LatestStateOptions]) -> AsyncLatestState[T]: ...
    @overload
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> AsyncLatestState[Any]: ...
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> AsyncLatestState[Any]:
        """Return the latest values of entities, in whatever order their events arrive.

        Args:
            name: What the entities are, such as `"vehicle"`.
            type: The type of the values. Stored values are decoded to it.
            choices: `window` is how long duplicates are recognised (`"7d"`). `keep_deleted` is how long deleted
                entities are remembered (`"30d"`), so that a late event does not restore them. An event that is more
                than `max_clock_skew` (`"5m"`; None: no limit) ahead of the store's clock is `Parked`.

        Raises:
            ConfigurationError: `keep_deleted` is shorter than `window`.
        """
        return AsyncLatestState(self, name, type, **choices)

    def schedule(
        self, pattern: str, *, tz: str = "UTC", name: str | None = None, **choices: Unpack[TickChoices]
    ) -> AsyncScheduleDecorator:
        """Return a decorator that declares a schedule: `@once.schedule("*/5 8-18 * * 1-6")`.

        `onceward schedule` or `run_schedules` runs each slot once, in however many processes you start them.

        Args:
            pattern: A cron pattern with five fields: minute, hour, day of month, month, day of week.
            tz: The time zone of the pattern, such as `"Europe/Berlin"`.
            name: The name of the schedule (default: module and name of the function).
            choices: Settings of the runs, such as `catch_up` and `overlap`, and policy settings such as `lease`.

        Raises:
            ConfigurationError: The pattern or time zone cannot be read, or a setting has no effect on a schedule.
        """
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
        """Return a block for a slot that an external scheduler triggers: `async with once.tick("report", at):`.

        Args:
            name: The name of the schedule.
            scheduled_at: The time of the slot, as a datetime with a time zone or as ISO 8601 text. Without it, the slot
                is the latest one of the `pattern`.
            pattern: The cron pattern that the slot belongs to.
            tz: The time zone of the pattern.
            rerun: Whether to make another attempt of a slot that failed.
            choices: Settings of the run, as for `schedule`.

        Returns:
            The block. Entering it raises `NotAcquired` if the slot is running or was run before.

        Raises:
            ConfigurationError: Neither `scheduled_at` nor `pattern` is given, or one of them cannot be read.
        """
        return AsyncTickBlock(self, name, scheduled_at, choices, pattern=pattern, tz=tz, rerun=rerun)

    async def run_schedules(self, *, on_result: OnResult | None = None) -> None:
        """Run the declared schedules when they are due, until `stop()`. Then wait for running slots to finish.

        Args:
            on_result: Called with a `Ran` for each slot that ran in this process, and a `Missed` for missed slots.

        Raises:
            ConfigurationError: This client has no schedules.
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
        """Declare a saga, and return it: in the end, either all of its steps are done, or all are undone.

        `once.saga("order", Step("charge", charge, undo=refund))`. Call the saga with its input as keyword arguments.

        Args:
            name: The name of the saga. It is part of its keys.
            steps: The steps, in the order in which they run.
            input_type: A function or class whose parameters are the input. With it, the input is checked, and may be
                passed by position.
            key: How to build the key from the input, as in `@once(key=…)`. By default the whole input is the key.
            version: Part of the key. A new version starts with new keys.
            tenant: Separates customers. A template such as `"{org_id}"`, or a callable that gets the input.
            choices: Policy settings of the saga; see `SagaChoices`. Settings of a step belong to `Step`.

        Raises:
            ConfigurationError: There are no steps, two have the same name, their order cannot be undone, or a setting
                does not apply to sagas.
        """
        return AsyncSaga(self, name, steps, input_type, choices, key=key, version=version, tenant=tenant)

    async def recover(self, *, every: Duration | None = None, on_result: OnRecovered | None = None) -> Recovery:
        """Finish interrupted calls that are not redelivered, of operations with `store_input=True`.

        Args:
            every: Repeat at this interval until `stop()`. Without it, `recover` returns when nothing is due.
            on_result: Called with a `Recovered` for each record that it handled, and for each pass in which the store
                failed.

        Returns:
            How many records were finished, failed, or remain.

        Raises:
            ConfigurationError: This client has declared nothing with `store_input=True`.
        """
        worker = sweeper(self, on_result)
        if every is None:
            return await worker.until_idle()
        return await worker.until_stopped(AsyncWorkerPool(), microseconds(every, "every") / SECOND)
