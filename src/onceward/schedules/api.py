"""The public API of schedules, sync and async: functions with a schedule, and `with once.tick(…)` blocks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Any, Generic, Protocol, cast

from onceward.engine import records
from onceward.engine.attempt import Attempt
from onceward.engine.engine import Engine
from onceward.engine.entry import Entry
from onceward.engine.job import Job
from onceward.errors import ConfigurationError
from onceward.keys.key import Key, Scope
from onceward.operations.block import SingleEntry
from onceward.operations.claim import AsyncClaim, Claim
from onceward.operations.decorator import P, T
from onceward.operations.operation import codec_for, name_of, result_annotation
from onceward.protocol.operation_names import SCHEDULE_PREFIX
from onceward.protocol.outcome import Outcome
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType
from onceward.runtime.threads import run

from . import slot_run as runs
from .definition import Schedule, SlotChoices, checked_slots, slot_of, slot_policy
from .runner import OnResult, ScheduleRunner
from .slots import Timetable

SLOT_CHOICES = frozenset(SlotChoices.__optional_keys__)
UNSUPPORTED_OPTIONS = frozenset({"on_running", "on_done", "fingerprint", "on_missing_key", "on_store_down"})
"""Options that have no effect on a run: its key is its slot, and overlap= controls concurrent runs."""


def declare(
    client: Any, name: str, table: Timetable | None, settings: Mapping[str, Any], what: str = "schedule"
) -> Schedule:
    """Check the settings, and return the schedule."""
    unsuitable = sorted(UNSUPPORTED_OPTIONS & settings.keys())
    if unsuitable:
        raise ConfigurationError(
            f"{what}({unsuitable[0]}=…) has no effect: the key of a run is its slot", hint="see overlap= and catch_up="
        )
    choices: Any = {name: value for name, value in settings.items() if name in SLOT_CHOICES}
    slots = checked_slots(choices)
    others: Any = {name: value for name, value in settings.items() if name not in SLOT_CHOICES}
    given = client.policy.with_settings(others, also_allowed=SLOT_CHOICES)
    policy = slot_policy(given, slots, others, declared_window="window" in others)
    if not isinstance(name, str) or not name:
        raise ConfigurationError("a schedule needs a name", hint='such as "nightly report"')
    return Schedule(name, Scope(client._app, f"{SCHEDULE_PREFIX}{name}", client._tenant), policy, slots, table)  # noqa: SLF001 (the client's own classes call this)


def codec_of(client: Any, schedule: Schedule, annotation: Any = Any) -> Codec:
    return codec_for(schedule.policy, ResultType(annotation), client._cipher, accept_plain=client._accept_plain)  # noqa: SLF001 (as above)


class DeclaredSchedule(Generic[P, T]):
    """A function with a schedule: what sync and async share. A direct call runs the function without a claim."""

    is_async = False

    def __init__(self, client: Any, fn: Callable[..., Any], name: str | None, table: Timetable, settings: Any) -> None:
        functools.update_wrapper(cast("Any", self), fn)
        self.schedule = declare(client, name or name_of(fn), table, settings)
        self.fn = fn
        self._engine: Engine = client.engine
        self._codec = codec_of(client, self.schedule, result_annotation(fn))
        self._takes_slot = takes_slot(fn, self.schedule.name)

    def key(self, scheduled_at: datetime | str) -> Key:
        """Return the key of the run of a slot. `scheduled_at` is its time, with a time zone, or ISO 8601 text."""
        return self.schedule.key(slot_of(scheduled_at))

    def job(self, slot: int) -> Job:
        """Return the job that runs a slot."""
        args = (self.schedule.local(slot),) if self._takes_slot else ()
        policy = self.schedule.policy
        return Job(self.schedule.key(slot), policy, self._codec, call=self.fn, args=args, is_async=self.is_async)

    def runner(self, on_result: OnResult | None) -> ScheduleRunner:
        """Return a runner for this schedule."""
        return ScheduleRunner(self._engine, self.schedule, self.job, on_result)

    def __repr__(self) -> str:
        table = self.schedule.table
        return f"<{type(self).__name__} {self.schedule.name}: {table.pattern.text} {table.zone}>"


class Scheduled(DeclaredSchedule[P, T]):
    """A sync function with a schedule. A direct call runs it immediately, without a claim.

    `scheduled_at` is the time of a slot: a datetime with a time zone, or ISO 8601 text.
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function directly, without a claim, and return its value.

        `args` and `kwargs` are its arguments. A function that takes the time of its slot needs it here too.
        """
        value: T = self.fn(*args, **kwargs)
        return value

    def tick(self, scheduled_at: datetime | str | None = None, *, rerun: bool = False) -> Outcome[T]:
        """Run a slot, unless it was run before.

        Args:
            scheduled_at: The time of the slot. By default, the latest slot that is due now.
            rerun: Whether to run a failed slot again.

        Returns:
            The outcome. `Replayed` if the slot was run before, `Running` if another worker is running it.
        """
        slot = None if scheduled_at is None else slot_of(scheduled_at)
        return run(runs.tick(self._engine, self.schedule, slot, self.job, rerun=rerun))

    def read(self, scheduled_at: datetime | str) -> Entry | None:
        """Return the record of that slot, or None."""
        return run(records.read(self._engine, self.key(scheduled_at), self._codec))


class AsyncScheduled(DeclaredSchedule[P, T]):
    """A coroutine function with a schedule. A direct call runs it immediately, without a claim.

    `scheduled_at` is the time of a slot: a datetime with a time zone, or ISO 8601 text.
    """

    is_async = True

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Await the function directly, without a claim, and return its value.

        `args` and `kwargs` are its arguments. A function that takes the time of its slot needs it here too.
        """
        value: T = await self.fn(*args, **kwargs)
        return value

    async def tick(self, scheduled_at: datetime | str | None = None, *, rerun: bool = False) -> Outcome[T]:
        """Run a slot, unless it was run before.

        Args:
            scheduled_at: The time of the slot. By default, the latest slot that is due now.
            rerun: Whether to run a failed slot again.

        Returns:
            The outcome. `Replayed` if the slot was run before, `Running` if another worker is running it.
        """
        slot = None if scheduled_at is None else slot_of(scheduled_at)
        return await runs.tick(self._engine, self.schedule, slot, self.job, rerun=rerun)

    async def read(self, scheduled_at: datetime | str) -> Entry | None:
        """Return the record of that slot, or None."""
        return await records.read(self._engine, self.key(scheduled_at), self._codec)


class ScheduleDecorator(Protocol):
    """The type of `@once.schedule(…)`. It preserves the types of the function."""

    def __call__(self, fn: Callable[P, T]) -> Scheduled[P, T]: ...


class AsyncScheduleDecorator(Protocol):
    """The type of `@once.schedule(…)`. It preserves the types of the function."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncScheduled[P, T]: ...


class SlotClaim(Claim):
    """The claim of one run."""

    __slots__ = ("_run",)

    def __init__(self, attempt: Attempt, run: runs.SlotRun) -> None:
        super().__init__(attempt)
        self._run = run

    @property
    def scheduled_at(self) -> datetime:
        """The scheduled time, in the time zone of the pattern (UTC without a pattern)."""
        return self._run.schedule.local(self._run.slot)


class AsyncSlotClaim(AsyncClaim):
    """The claim of one run."""

    __slots__ = ("_run",)

    def __init__(self, attempt: Attempt, run: runs.SlotRun) -> None:
        super().__init__(attempt)
        self._run = run

    @property
    def scheduled_at(self) -> datetime:
        """The scheduled time, in the time zone of the pattern (UTC without a pattern)."""
        return self._run.schedule.local(self._run.slot)


class Tick:
    """What the sync and the async block of a tick share: the schedule and the slot."""

    def __init__(
        self,
        client: Any,
        name: str,
        scheduled_at: datetime | str | None,
        choices: Mapping[str, Any],
        *,
        pattern: str | None,
        tz: str,
        rerun: bool,
    ) -> None:
        self._engine: Engine = client.engine
        self._schedule = schedule = tick_schedule(client, name, choices, pattern=pattern, tz=tz)
        self._codec = codec_of(client, schedule)
        if scheduled_at is None:
            _ = schedule.table  # raises: without a pattern the slot is unknown
        self._slot = None if scheduled_at is None else slot_of(scheduled_at)
        self._rerun = rerun
        self._entry = SingleEntry()
        self._run: runs.SlotRun | None = None

    def _job(self, slot: int) -> Job:
        return Job(self._schedule.key(slot), self._schedule.policy, self._codec)

    async def _enter(self) -> tuple[Attempt, runs.SlotRun]:
        self._entry.reserve()
        try:
            entered = await runs.enter(self._engine, self._schedule, self._slot, self._job, rerun=self._rerun)
        except BaseException:
            self._entry.release()
            raise
        self._entry.attempt, self._run = entered
        return entered

    async def _end(self, error: BaseException | None) -> None:
        attempt = self._entry.attempt or self._entry.raise_not_entered()
        try:
            await runs.end(attempt, cast("runs.SlotRun", self._run), error)
        finally:
            self._entry.release()


class TickBlock(Tick):
    """`with once.tick(name, …) as run:` run one slot. Raises NotAcquired if it was run before or is running."""

    def __enter__(self) -> SlotClaim:
        return SlotClaim(*run(self._enter()))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run(self._end(error))


class AsyncTickBlock(Tick):
    """`async with once.tick(name, …) as run:` run one slot. Raises NotAcquired as `TickBlock` does."""

    async def __aenter__(self) -> AsyncSlotClaim:
        return AsyncSlotClaim(*await self._enter())

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._end(error)


def tick_schedule(client: Any, name: str, choices: Mapping[str, Any], *, pattern: str | None, tz: str) -> Schedule:
    """Return the schedule that a tick names. If it was declared, the tick uses the declared options."""
    declared: DeclaredSchedule[Any, Any] | None = client.schedules.get(name)
    if declared is None:
        return declare(client, name, None if pattern is None else read_pattern(pattern, tz), choices, "tick")
    if pattern is not None or choices:
        raise ConfigurationError(
            f"the schedule {name!r} is already declared, with its own pattern and options", hint="leave them out here"
        )
    return declared.schedule


def read_pattern(pattern: str, tz: str) -> Timetable:
    from .cron import timetable  # imported here: cronsim is an optional dependency

    return timetable(pattern, tz)


def schedule_decorator(
    client: Any, kind: type[DeclaredSchedule[Any, Any]], table: Timetable, name: str | None, choices: Mapping[str, Any]
) -> Any:
    """Return the decorator for `once.schedule(…)`."""

    def decorate(fn: Callable[..., Any]) -> Any:
        if inspect.iscoroutinefunction(fn) is not kind.is_async:
            raise ConfigurationError(
                f"{fn!r} is {'async' if not kind.is_async else 'not async'}, unlike this client",
                hint="schedule async functions with AsyncOnce, sync functions with Once",
            )
        declared = kind(client, fn, name, table, choices)
        schedules = client.schedules
        if declared.schedule.name in schedules:
            raise ConfigurationError(
                f"two schedules are named {declared.schedule.name!r}: their runs would be the same", hint="give name="
            )
        if any(one.is_async is not kind.is_async for one in schedules.values()):
            raise ConfigurationError(
                "this client already has async or sync schedules, and cannot run both", hint="use a client for each"
            )
        schedules[declared.schedule.name] = declared
        return declared

    return decorate


def takes_slot(fn: Callable[..., Any], name: str) -> bool:
    """Return whether the function takes the scheduled time. It is its only parameter, if there is one."""
    required = [
        one
        for one in inspect.signature(fn).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if len(required) > 1 or any(one.kind is one.KEYWORD_ONLY for one in required):
        raise ConfigurationError(
            f"{name} has parameters that a schedule does not know",
            hint="it may have one parameter, the scheduled time: def report(scheduled_at): …",
        )
    return bool(required)


def runners(client: Any, on_result: OnResult | None) -> list[ScheduleRunner]:
    """Return a runner for each schedule that the client has declared."""
    if not client.schedules:
        raise ConfigurationError("this client has no schedules", hint='declare one: @once.schedule("0 3 * * *")')
    return [declared.runner(on_result) for declared in client.schedules.values()]
