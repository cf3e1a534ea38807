"""Locks, latest states, schedules, sagas and recovery: the sync methods of `Once`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack, overload

from onceward.operations.decorator import T
from onceward.operations.operation import KeySource, TenantSource
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.policy import SECOND, OnLost
from onceward.runtime.bridge import run

from .base import BaseClient

if TYPE_CHECKING:
    from datetime import datetime

    from onceward.latest.api import LatestState
    from onceward.locks.api import HeldLock, Lock
    from onceward.protocol.latest import LatestStateOptions
    from onceward.recovery.decision import Recovery
    from onceward.recovery.sweeper import OnRecovered
    from onceward.sagas.api import Saga, SagaChoices
    from onceward.sagas.definition import Step
    from onceward.schedules.api import ScheduleDecorator, TickBlock
    from onceward.schedules.definition import TickChoices
    from onceward.schedules.runner import OnResult


class Features(BaseClient):
    """The methods of `Once` that lock, keep latest states, run schedules and sagas, and recover interrupted calls."""

    def lock(
        self, name: Any, *, lease: Duration | None = None, wait: Duration | None = None, on_lost: OnLost = "notify"
    ) -> Lock:
        """Return a lock to hold while a block runs: `with once.lock("sync", lease="30s") as lock:`.

        It waits up to `wait` for another owner of the lock `name`. With `on_lost="cancel"`, async work is cancelled if
        another owner takes over after the `lease` has expired.
        """
        from onceward.locks.api import Lock, lock_job  # imported here: few programs need it, and imports take time

        return Lock(self.engine, lock_job(self, name, lease, wait, on_lost))

    def try_lock(self, name: Any, *, lease: Duration | None = None, on_lost: OnLost = "notify") -> HeldLock | None:
        """Return the lock, or None if another owner holds it. Use it as a `with` block, or call `release()`.

        `lease` and `on_lost` are those of `lock`.
        """
        from onceward.locks.api import try_acquire

        return try_acquire(self.lock(name, lease=lease, wait=0, on_lost=on_lost))

    @overload
    def state(self, name: str, type: type[T], **choices: Unpack[LatestStateOptions]) -> LatestState[T]: ...
    @overload
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> LatestState[Any]: ...
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> LatestState[Any]:
        """Return the latest values of the entities of `name`, in whatever order the events arrive.

        `type` is the type of the values. Duplicates are recognised for `window` ("7d"), and deleted entities remembered
        for `keep_deleted` ("30d"). An event more than `max_clock_skew` ("5m") ahead of the store's clock is `Parked`.
        """
        from onceward.latest.api import LatestState  # imported here, as in `lock`

        return LatestState(self, name, type, **choices)

    def schedule(
        self, pattern: str, *, tz: str = "UTC", name: str | None = None, **choices: Unpack[TickChoices]
    ) -> ScheduleDecorator:
        """Return a decorator that declares a schedule: `@once.schedule("*/5 8-18 * * 1-6")`.

        `pattern` is a cron pattern in the time zone `tz`. `onceward schedule` runs each slot once.
        """
        from onceward.schedules.api import (
            Scheduled,
            read_pattern,
            schedule_decorator,
        )  # imported here, as in `lock`

        decorator: ScheduleDecorator = schedule_decorator(self, Scheduled, read_pattern(pattern, tz), name, choices)
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
    ) -> TickBlock:
        """Return a block for one slot that an external scheduler triggers: `with once.tick("report", scheduled_at):`.

        `scheduled_at` is the time of the slot. Without it, the slot is the latest one of the `pattern` in the time zone
        `tz`. `rerun` makes another attempt of a slot that failed.
        """
        from onceward.schedules.api import TickBlock

        return TickBlock(self, name, scheduled_at, choices, pattern=pattern, tz=tz, rerun=rerun)

    def run_schedules(self, *, on_result: OnResult | None = None) -> None:
        """Run the declared schedules when they are due, until `stop()`. Then wait for running slots to finish.

        `on_result` is called with a `Ran` for each slot that ran in this process, and a `Missed` for skipped slots.
        """
        from onceward.runtime.threads import ThreadWorkerPool
        from onceward.schedules.api import runners
        from onceward.schedules.runner import run_loop

        run(run_loop(self.engine, runners(self, on_result), ThreadWorkerPool()))

    def saga(
        self,
        name: str,
        *steps: Step,
        input_type: Callable[..., Any] | None = None,
        key: KeySource = None,
        version: str | int | None = None,
        tenant: TenantSource = None,
        **choices: Unpack[SagaChoices],
    ) -> Saga:
        """Return a saga: in the end, either all of its `steps` are done, or all are undone.

        `once.saga("order", Step("charge", charge, undo=refund))`. Call it with its input as keyword arguments;
        `input_type` is a function or class with these parameters. A new `version` starts with new keys.
        """
        from onceward.sagas.api import Saga  # imported here, as in `lock`

        return Saga(self, name, steps, input_type, choices, key=key, version=version, tenant=tenant)

    def recover(self, *, every: Duration | None = None, on_result: OnRecovered | None = None) -> Recovery:
        """Finish interrupted calls of operations with `store_input=True` that are not redelivered. Return the counts.

        It returns when nothing is due. With `every`, it repeats at that interval until `stop()`. `on_result` is called
        with a `Recovered` for each record that it handled, and for each pass in which the store failed.
        """
        from onceward.recovery.deliveries import sweeper  # imported here, as in `lock`
        from onceward.runtime.threads import ThreadWorkerPool

        worker = sweeper(self, on_result)
        if every is None:
            return run(worker.until_idle())
        return run(worker.until_stopped(ThreadWorkerPool(), microseconds(every, "every") / SECOND))
