"""Locks, latest states, schedules, sagas and recovery: the sync methods of `Once`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, overload

from onceward.operations.decorator import T
from onceward.protocol.duration import Duration
from onceward.protocol.policy import OnLost

from .async_features import AsyncFeatures
from .base_features import BaseFeatures
from .blocking import blocking

if TYPE_CHECKING:
    from onceward.latest.api import LatestState
    from onceward.locks.api import HeldLock, Lock  # noqa: F401 (the base class names it)
    from onceward.protocol.latest import LatestStateOptions
    from onceward.sagas.api import Saga  # noqa: F401 (the base class names it)
    from onceward.schedules.api import ScheduleDecorator, TickBlock  # noqa: F401 (the base class names it)


class Features(BaseFeatures["Lock", "ScheduleDecorator", "TickBlock", "Saga"]):
    """The methods of `Once` that lock, keep latest states, run schedules and sagas, and recover interrupted calls."""

    def try_lock(self, name: Any, *, lease: Duration | None = None, on_lost: OnLost = "notify") -> HeldLock | None:
        """Acquire the lock without waiting. Use the result as a `with` block, or call `release()`.

        Args:
            name: What to lock.
            lease: How long the lock outlives its owner after a crash. The default is the client's.
            on_lost: `"notify"` or `"cancel"`, as for `lock`.

        Returns:
            The held lock, or None if another owner holds it.

        Raises:
            StoreUnavailable: The store does not answer.
        """
        from onceward.locks.api import try_acquire

        return try_acquire(self.lock(name, lease=lease, wait=0, on_lost=on_lost))

    @overload
    def state(self, name: str, type: type[T], **choices: Unpack[LatestStateOptions]) -> LatestState[T]: ...
    @overload
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> LatestState[Any]: ...
    def state(self, name: str, type: Any = Any, **choices: Unpack[LatestStateOptions]) -> LatestState[Any]:
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
        from onceward.latest.api import LatestState  # imported here, as in `lock`

        return LatestState(self, name, type, **choices)

    run_schedules = blocking(AsyncFeatures.run_schedules)
    recover = blocking(AsyncFeatures.recover)
