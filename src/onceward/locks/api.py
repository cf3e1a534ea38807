"""Locks as users hold them, in both colours: named (`Lock`), and owned (`HeldLock`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from onceward.engine.attempt import Attempt
from onceward.engine.engine import Engine
from onceward.engine.job import Job
from onceward.engine.lock_record import LOCK_FINGERPRINT
from onceward.errors import AlreadyRunning, ClaimError, ConfigurationError
from onceward.operations.abandoned import DropWatcher, unwatch, watch
from onceward.protocol.duration import Duration, microseconds
from onceward.protocol.operation_names import LOCK
from onceward.protocol.policy import OnLost
from onceward.results.codec import PLAIN
from onceward.runtime.bridge import run

from .flow import held_here, is_over, leave, left, refused, take, untaken

if TYPE_CHECKING:
    from onceward.client.base import BaseClient

Owned = TypeVar("Owned", bound="Owning")


def lock_job(client: BaseClient, name: Any, lease: Duration | None, wait: Duration | None, on_lost: OnLost) -> Job:
    """How a lock is claimed. A lapsed one is always taken over: nobody can be asked whether a block has happened."""
    settings: dict[str, Any] = {"after_crash": "rerun", "max_attempts": None, "retry_span": None, "on_lost": on_lost}
    if lease is not None:
        settings["lease"] = lease
    if wait is not None:
        settings |= {"wait": wait, "on_running": "wait" if microseconds(wait, "wait") else "raise"}
    policy = client.policy.with_settings(settings)  # type: ignore[arg-type]  # checked there, name by name
    return Job(client.key(name, name=LOCK), policy, PLAIN, LOCK_FINGERPRINT)


class Owning:
    """What needs no store: the same in both colours."""

    __slots__ = ("_attempt", "_watch")

    def __init__(self, held: Attempt) -> None:
        self._attempt = held
        self._watch: DropWatcher | None = None  # of the block that it was entered by

    @property
    def name(self) -> str:
        """The lock's name, as people see it."""
        return self._attempt.key.text

    @property
    def token(self) -> int:
        """Fencing number of this ownership: what the lock protects can refuse every lower one."""
        return self._attempt.record.token

    @property
    def taken_over(self) -> bool:
        """Whether the owner before us fell silent: what it was doing may be half done."""
        return self._attempt.record.attempt > 1

    @property
    def held(self) -> bool:
        """False once it was released, or known to be lost."""
        return not (is_over(self._attempt) or self._attempt.lost)

    def check(self) -> None:
        """Raise LeaseLost (or LeaseOverdue) if we may not be alone any more. Costs nothing: call it between steps."""
        if is_over(self._attempt):
            raise ClaimError("this lock was released", key=self.name, hint="check it inside of its block")
        self._attempt.check()

    def _entered(self) -> Self:
        if not self.held:
            raise ClaimError("this lock is not held any more", key=self.name, hint="acquire it again")
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: token {self.token}, {'held' if self.held else 'not held'}>"


class HeldLock(Owning):
    """A lock of `Once` that is ours. As a block: it is released at the end."""

    __slots__ = ()

    def release(self) -> None:
        """Free it for everybody, at once. Raises LeaseLost if it had another owner meanwhile. Again: does nothing."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self._entered()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            run(leave(self._attempt, error))
        except BaseException as interrupt:
            run(left(self._attempt, interrupt))
            raise


class AsyncHeldLock(Owning):
    """A lock of `AsyncOnce` that is ours. As a block: it is released at the end."""

    __slots__ = ()

    async def release(self) -> None:
        """Free it for everybody, at once. Raises LeaseLost if it had another owner meanwhile. Again: does nothing."""
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        return self._entered()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await leave(self._attempt, error)
        except BaseException as interrupt:
            await left(self._attempt, interrupt)
            raise


class Named(Generic[Owned]):
    """A lock by its name. Many may share the object: each `with` is an ownership of its own."""

    def __init__(self, engine: Engine, job: Job | Callable[[], Job]) -> None:
        self._engine = engine
        self._job = job
        self._entered: list[Owned] = []

    def _enter(self, lock: Owned) -> None:
        """If its end is struck before it begins, nobody can end it any more: it lapses with this object."""
        self._entered.append(lock)
        lock._watch = watch(self, lock._attempt.abandon)  # noqa: SLF001 (part of this module)

    def _ending(self) -> Owned:
        """The ownership that this `with` began: that of this thread or task, innermost first."""
        here = held_here()
        mine = [lock for lock in self._entered if lock._attempt in here] or self._entered  # noqa: SLF001 (part of this module)
        if not mine or (mine is self._entered and len(mine) > 1):
            raise ConfigurationError(
                "this lock was not entered here", hint="leave its block in the thread or task that entered it"
            )
        return mine[-1]

    def _end(self, lock: Owned) -> None:
        if lock in self._entered:
            self._entered.remove(lock)
        if lock._watch is not None:  # noqa: SLF001 (part of this module)
            unwatch(lock._watch)  # noqa: SLF001 (part of this module)


class Lock(Named[HeldLock]):
    """`with once.lock("sync", lease="30s") as lock:` one owner at a time, across all processes."""

    def acquire(self) -> HeldLock:
        """Own it, or raise AlreadyRunning (StillRunning after the wait). Whoever acquires has to release."""
        return self._acquired()

    def _acquired(self, *, in_block: bool = False) -> HeldLock:
        """A signal may raise wherever a function begins, so the lock stands there before it is asked for."""
        job = self._job if isinstance(self._job, Job) else self._job()
        held = untaken(self._engine, job)
        lock = HeldLock(held)
        try:
            if in_block:
                self._enter(lock)
            run(take(held))
            return lock
        except BaseException as error:
            self._end(lock)
            run(refused(held, error))
            raise

    def __enter__(self) -> HeldLock:
        return self._acquired(in_block=True)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        lock = None
        try:
            lock = self._ending()
            lock.__exit__(kind, error, trace)
        except BaseException as interrupt:
            lock = lock or self._ending()
            run(left(lock._attempt, interrupt))  # noqa: SLF001 (part of this module)
            raise
        finally:
            if lock is not None:
                self._end(lock)


class AsyncLock(Named[AsyncHeldLock]):
    """`async with once.lock("sync", lease="30s") as lock:` one owner at a time, across all processes."""

    async def acquire(self) -> AsyncHeldLock:
        """Own it, or raise AlreadyRunning (StillRunning after the wait). Whoever acquires has to release."""
        return await self._acquired()

    async def _acquired(self, *, in_block: bool = False) -> AsyncHeldLock:
        """A signal may raise wherever a function begins, so the lock stands there before it is asked for."""
        job = self._job if isinstance(self._job, Job) else await self._engine.runtime.compute(self._job)
        held = untaken(self._engine, job)
        lock = AsyncHeldLock(held)
        try:
            if in_block:
                self._enter(lock)
            await take(held)
            return lock
        except BaseException as error:
            self._end(lock)
            await refused(held, error)
            raise

    async def __aenter__(self) -> AsyncHeldLock:
        return await self._acquired(in_block=True)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        lock = None
        try:
            lock = self._ending()
            await lock.__aexit__(kind, error, trace)
        except BaseException as interrupt:
            lock = lock or self._ending()
            await left(lock._attempt, interrupt)  # noqa: SLF001 (part of this module)
            raise
        finally:
            if lock is not None:
                self._end(lock)


def tried(lock: Lock) -> HeldLock | None:
    """The lock, or None where somebody else has it."""
    try:
        return lock.acquire()
    except AlreadyRunning:
        return None


async def tried_async(lock: AsyncLock) -> AsyncHeldLock | None:
    """The lock, or None where somebody else has it."""
    try:
        return await lock.acquire()
    except AlreadyRunning:
        return None
