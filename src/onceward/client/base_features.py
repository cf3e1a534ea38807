"""Declare locks, schedules, ticks and sagas: what `Once` and `AsyncOnce` share. Only the types differ."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from onceward.operations.operation import KeySource, TenantSource
from onceward.protocol.duration import Duration
from onceward.protocol.policy import OnLost

from .base import BaseClient

if TYPE_CHECKING:
    from datetime import datetime

    from onceward.sagas.api import SagaChoices
    from onceward.sagas.definition import Step
    from onceward.schedules.definition import TickChoices

L = TypeVar("L")  # the type of locks
D = TypeVar("D")  # the type of the decorator of schedules
B = TypeVar("B")  # the type of the block of `tick`
S = TypeVar("S")  # the type of sagas


class BaseFeatures(BaseClient, Generic[L, D, B, S]):
    """The methods that declare something, and do not talk to the store."""

    def lock(
        self, name: Any, *, lease: Duration | None = None, wait: Duration | None = None, on_lost: OnLost = "notify"
    ) -> L:
        """Return a lock to hold while a block runs: `with once.lock("sync", lease="30s") as lock:`.

        With `AsyncOnce`, write `async with`.

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
        from onceward.locks.api import AsyncLock, Lock, lock_job  # imported here: few programs need it
        from onceward.operations.job_builder import is_quick

        kind: Any = AsyncLock if self._is_async else Lock
        job = functools.partial(lock_job, self, name, lease, wait, on_lost)
        lock: L = kind(self.engine, job if self._is_async and not is_quick(name) else job())
        return lock

    def schedule(self, pattern: str, *, tz: str = "UTC", name: str | None = None, **choices: Unpack[TickChoices]) -> D:
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
        from onceward.schedules.api import (  # imported here, as in `lock`
            AsyncScheduled,
            Scheduled,
            read_pattern,
            schedule_decorator,
        )

        kind = AsyncScheduled if self._is_async else Scheduled
        decorator: D = schedule_decorator(self, kind, read_pattern(pattern, tz), name, choices)
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
    ) -> B:
        """Return a block for a slot that an external scheduler triggers: `with once.tick("report", at):`.

        With `AsyncOnce`, write `async with`.

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
        from onceward.schedules.api import AsyncTickBlock, TickBlock  # imported here, as in `lock`

        kind: Any = AsyncTickBlock if self._is_async else TickBlock
        block: B = kind(self, name, scheduled_at, choices, pattern=pattern, tz=tz, rerun=rerun)
        return block

    def saga(
        self,
        name: str,
        *steps: Step,
        input_type: Callable[..., Any] | None = None,
        key: KeySource = None,
        version: str | int | None = None,
        tenant: TenantSource = None,
        **choices: Unpack[SagaChoices],
    ) -> S:
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
        from onceward.sagas.api import AsyncSaga, Saga  # imported here, as in `lock`

        kind: Any = AsyncSaga if self._is_async else Saga
        saga: S = kind(self, name, steps, input_type, choices, key=key, version=version, tenant=tenant)
        return saga
