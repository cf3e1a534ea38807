"""The public API of locks, sync and async: `Lock` (by its name), and `HeldLock` (one ownership)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from onceward.engine.attempt import Attempt
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.engine.lock_record import LOCK_FINGERPRINT
from onceward.errors import AlreadyRunning, ClaimError, ConfigurationError
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.operation_names import LOCK
from onceward.protocol.policy import OnLost
from onceward.results.codec import PLAIN
from onceward.runtime.threads import run

from .flow import acquire_lock, held_here, is_closed, leave

if TYPE_CHECKING:
    from onceward.client.base import BaseClient

AnyHeldLock = TypeVar("AnyHeldLock", bound="BaseHeldLock")


def lock_job(client: BaseClient, name: Any, lease: Duration | None, wait: Duration | None, on_lost: OnLost) -> Job:
    """Return the job that claims a lock. An expired lock is always taken over: a block has no effect to verify."""
    settings: dict[str, Any] = {
        "after_crash": "rerun",
        "max_attempts": None,
        "retry_span": None,
        "on_lost": on_lost,
        "on_store_down": "raise",  # without a store, there is no lock
        "open_transaction": "ignore",  # a lock records no work that a rollback could undo
    }
    if lease is not None:
        settings["lease"] = lease
    if wait is not None:
        settings |= {"wait": wait, "on_running": "wait" if microseconds(wait, "wait") else "raise"}
    policy = client.policy.with_settings(settings)  # type: ignore[arg-type]  # checked there, name by name
    return Job(client.key(name, name=LOCK), policy, PLAIN, LOCK_FINGERPRINT)


class BaseHeldLock:
    """What sync and async held locks share: everything that needs no store."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    @property
    def name(self) -> str:
        """The readable name of the lock."""
        return self._attempt.key.text

    @property
    def token(self) -> int:
        """The fencing token of this ownership. The resource that the lock protects can reject every lower token."""
        return self._attempt.record.token

    @property
    def taken_over(self) -> bool:
        """Whether the previous owner crashed or stopped renewing: its work may be half done."""
        return self._attempt.record.attempt > 1

    @property
    def held(self) -> bool:
        """Whether the lock is held: not released, and not known to be lost."""
        return not (is_closed(self._attempt) or self._attempt.lost)

    def check(self) -> None:
        """Raise LeaseLost (or LeaseOverdue) if another owner may hold the lock. It is cheap: call it between steps."""
        if is_closed(self._attempt):
            raise ClaimError("this lock was released", key=self.name, hint="call check() inside the block")
        self._attempt.check()

    def _raise_if_not_held(self) -> Self:
        if not self.held:
            raise ClaimError("this lock is no longer held", key=self.name, hint="acquire it again")
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: token {self.token}, {'held' if self.held else 'not held'}>"


class HeldLock(BaseHeldLock):
    """A lock of `Once` that this caller holds. As a context manager, it is released at the end of the block."""

    __slots__ = ()

    def release(self) -> None:
        """Release the lock. Raise LeaseLost if it had another owner in between. A second call does nothing."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self._raise_if_not_held()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run(leave(self._attempt, error))


class AsyncHeldLock(BaseHeldLock):
    """A lock of `AsyncOnce` that this caller holds. As a context manager, it is released at the end of the block."""

    __slots__ = ()

    async def release(self) -> None:
        """Release the lock. Raise LeaseLost if it had another owner in between. A second call does nothing."""
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        return self._raise_if_not_held()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await leave(self._attempt, error)


class BaseLock(Generic[AnyHeldLock]):
    """A lock by its name. Threads and tasks may share the object: each `with` is an ownership of its own."""

    def __init__(self, engine: Engine, job: Job | Callable[[], Job]) -> None:
        self._engine = engine
        self._job = job
        self._entered: list[AnyHeldLock] = []

    def _entered_here(self) -> AnyHeldLock:
        """Return the ownership that this `with` began: the innermost one of this thread or task."""
        held = held_here()
        mine = [lock for lock in self._entered if lock._attempt in held] or self._entered  # noqa: SLF001 (part of this module)
        if not mine or (mine is self._entered and len(mine) > 1):
            raise ConfigurationError(
                "this lock was not entered here", hint="leave its block in the thread or task that entered it"
            )
        return mine[-1]


class Lock(BaseLock[HeldLock]):
    """`with once.lock("sync", lease="30s") as lock:` one owner at a time, across all processes."""

    def acquire(self) -> HeldLock:
        """Acquire the lock, or raise AlreadyRunning (StillRunning after the wait). The caller must release it.

        Keep the returned object: if it is dropped, the lock is no longer renewed.
        """
        job = self._job if isinstance(self._job, Job) else self._job()
        return HeldLock(run(acquire_lock(self._engine, job)))

    def __enter__(self) -> HeldLock:
        lock = self.acquire()
        self._entered.append(lock)
        return lock

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        lock = self._entered_here()
        self._entered.remove(lock)
        lock.__exit__(kind, error, trace)


class AsyncLock(BaseLock[AsyncHeldLock]):
    """`async with once.lock("sync", lease="30s") as lock:` one owner at a time, across all processes."""

    async def acquire(self) -> AsyncHeldLock:
        """Acquire the lock, or raise AlreadyRunning (StillRunning after the wait). The caller must release it.

        Keep the returned object: if it is dropped, the lock is no longer renewed.
        """
        job = self._job if isinstance(self._job, Job) else await self._engine.runtime.compute(self._job)
        return AsyncHeldLock(await acquire_lock(self._engine, job))

    async def __aenter__(self) -> AsyncHeldLock:
        lock = await self.acquire()
        self._entered.append(lock)
        return lock

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        lock = self._entered_here()
        self._entered.remove(lock)
        await lock.__aexit__(kind, error, trace)


def try_acquire(lock: Lock) -> HeldLock | None:
    """Return the held lock, or None if another owner holds it."""
    try:
        return lock.acquire()
    except AlreadyRunning:
        return None


async def try_acquire_async(lock: AsyncLock) -> AsyncHeldLock | None:
    """Return the held lock, or None if another owner holds it."""
    try:
        return await lock.acquire()
    except AlreadyRunning:
        return None
