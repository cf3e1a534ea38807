"""Locks, latest states, schedules, sagas and recovery: the async methods of `AsyncOnce`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, overload

from onceward.operations.decorator import T
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.policy import SECOND, OnLost

from .base import BaseClient
from .base_features import BaseFeatures

if TYPE_CHECKING:
    from onceward.latest.api import AsyncLatestState
    from onceward.locks.api import AsyncHeldLock, AsyncLock  # noqa: F401 (the base class names it)
    from onceward.protocol.latest import LatestStateOptions
    from onceward.protocol.runtime import WorkerPool
    from onceward.recovery.decision import Recovery
    from onceward.recovery.sweeper import OnRecovered
    from onceward.sagas.api import AsyncSaga  # noqa: F401 (the base class names it)
    from onceward.schedules.api import AsyncScheduleDecorator, AsyncTickBlock  # noqa: F401 (the base class names it)
    from onceward.schedules.runner import OnResult


class AsyncFeatures(BaseFeatures["AsyncLock", "AsyncScheduleDecorator", "AsyncTickBlock", "AsyncSaga"]):
    """The methods of `AsyncOnce` that lock, keep latest states, run schedules and sagas, and recover calls."""

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
        from onceward.locks.api import try_acquire_async  # imported here, as in `lock`

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
        from onceward.latest.api import AsyncLatestState  # imported here, as in `lock`

        return AsyncLatestState(self, name, type, **choices)

    async def run_schedules(self, *, on_result: OnResult | None = None) -> None:
        """Run the declared schedules when they are due, until `stop()`. Then wait for running slots to finish.

        Args:
            on_result: Called with a `Ran` for each slot that ran in this process, and a `Missed` for missed slots.

        Raises:
            ConfigurationError: This client has no schedules.
        """
        from onceward.schedules.api import runners  # imported here, as in `lock`
        from onceward.schedules.runner import run_loop

        await run_loop(self.engine, runners(self, on_result), worker_pool(self))

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
        from onceward.recovery.deliveries import sweeper  # imported here, as in `lock`

        worker = sweeper(self, on_result)
        if every is None:
            return await worker.until_idle()
        return await worker.until_stopped(worker_pool(self), microseconds(every, "every") / SECOND)


def worker_pool(client: BaseClient) -> WorkerPool:
    """Return a pool that runs each piece of work in its own task, or in its own thread for a sync client."""
    if client.engine.runtime.supports_cancellation:
        from onceward.runtime.aio import AsyncWorkerPool

        return AsyncWorkerPool()
    from onceward.runtime.threads import ThreadWorkerPool

    return ThreadWorkerPool()
