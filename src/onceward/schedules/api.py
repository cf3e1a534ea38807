"""Schedules as users hold them, in both colours: a declared function, and the block of a tick."""

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
from onceward.operations.block import OneUse
from onceward.operations.claim import AsyncClaim, Claim
from onceward.operations.decorator import P, T
from onceward.operations.operation import codec_for, name_of, result_annotation
from onceward.protocol.operation_names import SCHEDULE_PREFIX
from onceward.protocol.outcome import Outcome
from onceward.results.codec import Codec
from onceward.results.result_type import ResultType
from onceward.runtime.bridge import run

from . import slot_run as runs
from .definition import Schedule, SlotChoices, slot_of, slot_policy, slots_with
from .runner import ScheduleRunner, Watcher
from .slots import Timetable

SLOT_CHOICES = frozenset(SlotChoices.__optional_keys__)
UNSUITABLE = frozenset({"on_running", "on_done", "fingerprint", "on_missing_key", "on_store_down"})
"""Settings that mean nothing to a run: its key is its slot, and overlap= says what to do about another one."""


def declare(
    client: Any, name: str, table: Timetable | None, settings: Mapping[str, Any], what: str = "schedule"
) -> Schedule:
    """The schedule of that name with these choices, checked."""
    unsuitable = sorted(UNSUITABLE & settings.keys())
    if unsuitable:
        raise ConfigurationError(
            f"{what}({unsuitable[0]}=…) has no effect: the key of a run is its slot", hint="see overlap= and catch_up="
        )
    choices: Any = {name: value for name, value in settings.items() if name in SLOT_CHOICES}
    slots = slots_with(choices)
    others: Any = {name: value for name, value in settings.items() if name not in SLOT_CHOICES}
    policy = slot_policy(client.policy.with_settings(others), slots, others, declared_window="window" in others)
    if not isinstance(name, str) or not name:
        raise ConfigurationError("a schedule needs a name", hint='such as "nightly report"')
    return Schedule(name, Scope(client._app, f"{SCHEDULE_PREFIX}{name}", client._tenant), policy, slots, table)  # noqa: SLF001 (its own faces call this)


def codec_of(client: Any, schedule: Schedule, annotation: Any = Any) -> Codec:
    return codec_for(schedule.policy, ResultType(annotation), client._cipher, accept_plain=client._accept_plain)  # noqa: SLF001 (as above)


class Planned(Generic[P, T]):
    """A function with a schedule: what is the same in both colours. Called directly, it is the plain function."""

    awaits = False

    def __init__(self, client: Any, fn: Callable[..., Any], name: str | None, table: Timetable, settings: Any) -> None:
        functools.update_wrapper(cast("Any", self), fn)
        self.schedule = declare(client, name or name_of(fn), table, settings)
        self.fn = fn
        self._engine: Engine = client.engine
        self._codec = codec_of(client, self.schedule, result_annotation(fn))
        self._takes_slot = takes_slot(fn, self.schedule.name)

    def key(self, scheduled_at: datetime | str) -> Key:
        """The key of the run of that slot."""
        return self.schedule.key(slot_of(scheduled_at))

    def job(self, slot: int) -> Job:
        """The job of a slot."""
        args = (self.schedule.local(slot),) if self._takes_slot else ()
        policy = self.schedule.policy
        return Job(self.schedule.key(slot), policy, self._codec, call=self.fn, args=args, awaits=self.awaits)

    def watch(self, tell: Watcher | None) -> ScheduleRunner:
        """This schedule, as a runner looks after it."""
        return ScheduleRunner(self._engine, self.schedule, self.job, tell)

    def __repr__(self) -> str:
        table = self.schedule.table
        return f"<{type(self).__name__} {self.schedule.name}: {table.pattern.text} {table.zone}>"


class Scheduled(Planned[P, T]):
    """A plain function with a schedule."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        value: T = self.fn(*args, **kwargs)
        return value

    def tick(self, scheduled_at: datetime | str | None = None, *, rerun: bool = False) -> Outcome[T]:
        """Run this slot, or the one that is due by now, unless that was done. `rerun`: also if it failed before."""
        slot = None if scheduled_at is None else slot_of(scheduled_at)
        return run(runs.tick(self._engine, self.schedule, slot, self.job, rerun=rerun))

    def read(self, scheduled_at: datetime | str) -> Entry | None:
        """The record of that slot, or None."""
        return run(records.read(self._engine, self.key(scheduled_at), self._codec))


class AsyncScheduled(Planned[P, T]):
    """A coroutine function with a schedule."""

    awaits = True

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        value: T = await self.fn(*args, **kwargs)
        return value

    async def tick(self, scheduled_at: datetime | str | None = None, *, rerun: bool = False) -> Outcome[T]:
        """Run this slot, or the one that is due by now, unless that was done. `rerun`: also if it failed before."""
        slot = None if scheduled_at is None else slot_of(scheduled_at)
        return await runs.tick(self._engine, self.schedule, slot, self.job, rerun=rerun)

    async def read(self, scheduled_at: datetime | str) -> Entry | None:
        """The record of that slot, or None."""
        return await records.read(self._engine, self.key(scheduled_at), self._codec)


class ScheduleDecorator(Protocol):
    """`@once.schedule(…)`: keeps the function's types."""

    def __call__(self, fn: Callable[P, T]) -> Scheduled[P, T]: ...


class AsyncScheduleDecorator(Protocol):
    """`@once.schedule(…)`: keeps the function's types."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]]) -> AsyncScheduled[P, T]: ...


class SlotClaim(Claim):
    """The claim of one run."""

    __slots__ = ("_run",)

    def __init__(self, attempt: Attempt, run: runs.Run, block: object) -> None:
        super().__init__(attempt, block)
        self._run = run

    @property
    def scheduled_at(self) -> datetime:
        """The slot, in the zone of the pattern (UTC without one)."""
        return self._run.schedule.local(self._run.slot)


class AsyncSlotClaim(AsyncClaim):
    """The claim of one run."""

    __slots__ = ("_run",)

    def __init__(self, attempt: Attempt, run: runs.Run, block: object) -> None:
        super().__init__(attempt, block)
        self._run = run

    @property
    def scheduled_at(self) -> datetime:
        """The slot, in the zone of the pattern (UTC without one)."""
        return self._run.schedule.local(self._run.slot)


class Tick:
    """What both colours of a tick's block share: of which schedule, for which slot."""

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
        self._schedule = schedule = ticking(client, name, choices, pattern=pattern, tz=tz)
        self._codec = codec_of(client, schedule)
        if scheduled_at is None:
            _ = schedule.table  # without a pattern nobody can tell the slot
        self._slot = None if scheduled_at is None else slot_of(scheduled_at)
        self._rerun = rerun
        self._use = OneUse()
        self._run: runs.Run | None = None

    def _job(self, slot: int) -> Job:
        return Job(self._schedule.key(slot), self._schedule.policy, self._codec)

    def _begun(self, run: runs.Run, attempt: Attempt) -> None:
        self._run = run
        self._use.hold(attempt)

    async def _enter(self) -> tuple[Attempt, runs.Run]:
        await runs.enter(self._engine, self._schedule, self._slot, self._job, self._begun, rerun=self._rerun)
        return cast("Attempt", self._use.attempt), cast("runs.Run", self._run)

    async def _refused(self, error: BaseException) -> None:
        attempt = self._use.attempt
        self._use.end()
        if attempt is not None:
            await runs.refused(attempt, cast("runs.Run", self._run), error)

    async def _end(self, error: BaseException | None) -> None:
        attempt = self._use.attempt or self._use.refuse()
        try:
            await runs.end(attempt, cast("runs.Run", self._run), error)
        finally:
            self._use.end()


class TickBlock(Tick):
    """`with once.tick(name, …) as run:` the run of one slot. Raises NotAcquired if it is not ours to do."""

    def __enter__(self) -> SlotClaim:
        self._use.occupy()
        try:
            return SlotClaim(*run(self._enter()), self)
        except BaseException as error:
            run(self._refused(error))
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run(self._end(error))


class AsyncTickBlock(Tick):
    """`async with once.tick(name, …) as run:` the run of one slot, or NotAcquired."""

    async def __aenter__(self) -> AsyncSlotClaim:
        self._use.occupy()
        try:
            return AsyncSlotClaim(*await self._enter(), self)
        except BaseException as error:
            await self._refused(error)
            raise

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._end(error)


def ticking(client: Any, name: str, choices: Mapping[str, Any], *, pattern: str | None, tz: str) -> Schedule:
    """The schedule that a tick names. If it was declared, its own choices hold."""
    declared: Planned[Any, Any] | None = client.schedules.get(name)
    if declared is None:
        return declare(client, name, None if pattern is None else read_pattern(pattern, tz), choices, "tick")
    if pattern is not None or choices:
        raise ConfigurationError(
            f"the schedule {name!r} is declared already: its own pattern and choices hold", hint="leave them out here"
        )
    return declared.schedule


def read_pattern(pattern: str, tz: str) -> Timetable:
    from .cron import timetable  # here, because its reader is an extra

    return timetable(pattern, tz)


def plan(
    client: Any, kind: type[Planned[Any, Any]], table: Timetable, name: str | None, choices: Mapping[str, Any]
) -> Any:
    """The decorator of `schedule`."""

    def decorate(fn: Callable[..., Any]) -> Any:
        if inspect.iscoroutinefunction(fn) is not kind.awaits:
            raise ConfigurationError(
                f"{fn!r} is {'async' if not kind.awaits else 'not async'}, unlike this client",
                hint="schedule async functions with AsyncOnce, the others with Once",
            )
        planned = kind(client, fn, name, table, choices)
        others = client.schedules
        if planned.schedule.name in others:
            raise ConfigurationError(
                f"two schedules are named {planned.schedule.name!r}: their runs would be the same", hint="give name="
            )
        if any(one.awaits is not kind.awaits for one in others.values()):
            raise ConfigurationError(
                "this client has schedules of the other colour already", hint="one client runs async or plain ones"
            )
        others[planned.schedule.name] = planned
        return planned

    return decorate


def takes_slot(fn: Callable[..., Any], name: str) -> bool:
    """Whether the function wants to know for which time it was scheduled: its only parameter, if it has one."""
    wanted = [
        one
        for one in inspect.signature(fn).parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if len(wanted) > 1 or any(one.kind is one.KEYWORD_ONLY for one in wanted):
        raise ConfigurationError(
            f"{name} has parameters that a schedule does not know",
            hint="it may have one: the scheduled time, def report(scheduled_at): …",
        )
    return bool(wanted)


def watches(client: Any, tell: Watcher | None) -> list[ScheduleRunner]:
    """All that the client has declared."""
    if not client.schedules:
        raise ConfigurationError("this client has no schedules", hint='declare one: @once.schedule("0 3 * * *")')
    return [planned.watch(tell) for planned in client.schedules.values()]
