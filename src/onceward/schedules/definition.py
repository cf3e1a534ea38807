"""A schedule: its name, its slots, and the declared choices of what happens when a slot is late or work takes long."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, TypedDict, get_args

from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import ConfigurationError, InvalidKey
from onceward.keys.key import Key, Scope, make_key
from onceward.protocol.duration import Duration, format_duration, microseconds
from onceward.protocol.outcome import Outcome
from onceward.protocol.policy import CommonSettings, Policy
from onceward.protocol.window import lasting

from .slots import MICROSECOND, Timetable, datetime_of, instant_of

Overlap = Literal["skip", "wait", "allow"]
CatchUp = Literal["none", "last", "all"]

DAY = 24 * 3600 * 1_000_000
SKIPPED = "Skipped"
"""The error type of a slot that was settled without being run, because another run was still going."""

MISSED_AFTER_GRACES = 2
"""After so many times the grace, a slot that nobody began is missed. In between no runner begins it or gives it up: two
runners never differ about that."""


class SlotChoices(TypedDict, total=False):
    """What may be declared about slots, as users write it."""

    overlap: Overlap
    catch_up: CatchUp
    catch_up_age: Duration
    catch_up_count: int
    grace: Duration
    early: Duration


class TickChoices(CommonSettings, SlotChoices, total=False):
    """Everything that may be declared about a schedule, as users write it."""


class Slots(Struct, frozen=True):
    """The choices, in the units that the core works with (µs)."""

    overlap: Overlap = "skip"
    catch_up: CatchUp = "none"
    catch_up_age: int = DAY
    catch_up_count: int = 100
    grace: int = 60 * 1_000_000
    early: int = 30 * 1_000_000


class Schedule(Struct, frozen=True, dict=True):
    """A named row of slots. A run is (name, slot): once, wherever it is started."""

    name: str
    scope: Scope
    policy: Policy
    slots: Slots = Slots()
    timetable: Timetable | None = None

    def key(self, slot: int) -> Key:
        """The key of one run: the scheduled instant, in UTC, whatever zone its pattern is in."""
        at = datetime_of(slot)
        text = at.isoformat(timespec="auto" if slot % 60_000_000 else "minutes").removesuffix("+00:00")
        return make_key(self.scope, at, f"{text}Z")

    @cached_property
    def turn(self) -> Key:
        """The key of the lock that runs hold which must not overlap."""
        return make_key(self.scope, "running")

    @cached_property
    def cursors(self) -> tuple[Key, Key]:
        """The keys of the two records in which the cursor is kept. Another pattern is another cursor."""
        table = self.table
        marks = [("cursor", table.pattern.text, table.zone, number) for number in (0, 1)]
        texts = [f"cursor {table.pattern.text} {table.zone} {'ab'[number]}" for number in (0, 1)]
        first, second = (make_key(self.scope, mark, text) for mark, text in zip(marks, texts, strict=True))
        return first, second

    @property
    def table(self) -> Timetable:
        if self.timetable is None:
            raise ConfigurationError(
                f"the schedule {self.name!r} has no pattern", hint='give pattern="*/5 * * * *", or scheduled_at='
            )
        return self.timetable

    def local(self, slot: int) -> datetime:
        """The scheduled time as its zone's clocks show it."""
        at = datetime_of(slot)
        return at if self.timetable is None else at.astimezone(self.timetable.clock_on_the_wall)

    def meant_by(self, now: int) -> int | None:
        """The slot that a fire at this time is for: the latest one, or the next one if the fire comes a little early.

        Machines fire by clocks of their own. One that is ahead of the store's comes before the slot that it means;
        taken for a late fire of the slot before, it would run beside the machine that is right.
        """
        latest, coming = self.table.latest(now), self.table.next(now)
        if coming is None:
            return latest
        room = self.slots.early if latest is None else min(self.slots.early, (coming - latest) // 2)
        return coming if coming - now <= room else latest


class Ran(Struct, frozen=True):
    """One run of a schedule in this process, for whoever watches."""

    name: str
    scheduled_at: datetime
    outcome: Outcome[Any]
    late: bool


class Missed(Struct, frozen=True):
    """Slots that were given up without a run. `more`: not all of them were counted."""

    name: str
    count: int
    first: datetime
    last: datetime
    more: bool = False

    def __str__(self) -> str:
        runs = "run" if self.count == 1 else "runs"
        return f"{self.count}{'+' if self.more else ''} {runs} missed, {format_time(self.first)} to {format_time(self.last)}"


def format_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="auto" if at.second or at.microsecond else "minutes")[:-6] + "Z"


def slot_of(scheduled_at: datetime | str) -> int:
    """The scheduled instant. A time without a zone is several instants, so it is refused."""
    if isinstance(scheduled_at, str):
        try:
            scheduled_at = datetime.fromisoformat(scheduled_at)
        except ValueError as error:
            raise InvalidKey(
                f"scheduled_at is no time: {scheduled_at!r}", hint="such as 2026-03-01T08:05:00Z"
            ) from error
    if not isinstance(scheduled_at, datetime) or scheduled_at.utcoffset() is None:
        raise InvalidKey(
            f"scheduled_at must say in which zone it is: {scheduled_at!r}", hint="datetime(…, tzinfo=UTC), or …Z"
        )
    return instant_of(scheduled_at)


def checked_slots(choices: SlotChoices) -> Slots:
    """The choices, checked."""
    chosen: dict[str, Any] = {}
    for name, value in choices.items():
        if name in _ALLOWED:
            if value not in _ALLOWED[name]:
                raise ConfigurationError(
                    f"{name} cannot be {value!r}", hint=f"choose one of: {', '.join(map(repr, _ALLOWED[name]))}"
                )
            chosen[name] = value
        elif name == "catch_up_count":
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {value!r}")
            chosen[name] = value
        else:
            chosen[name] = microseconds(value, name)  # type: ignore[arg-type]  # checked there
    slots = Slots(**chosen)
    if not slots.grace:
        raise ConfigurationError("a grace of 0 would miss every slot", hint='such as grace="60s"')
    if slots.catch_up_age < MISSED_AFTER_GRACES * slots.grace:
        raise ConfigurationError(
            f"catch_up_age ({format_duration(slots.catch_up_age)}) must be {MISSED_AFTER_GRACES} times the grace "
            f"({format_duration(slots.grace)}) at least"
        )
    return slots


_ALLOWED: dict[str, tuple[str, ...]] = {"overlap": get_args(Overlap), "catch_up": get_args(CatchUp)}


def slot_retention(slots: Slots, lease: int) -> int:
    """How long a slot's record has to be kept (µs): longer than anybody may still ask for its run."""
    return slots.catch_up_age + lease + DAY


def slot_policy(policy: Policy, slots: Slots, settings: CommonSettings, *, declared_window: bool) -> Policy:
    """The policy of one run. A failure is final unless it was asked to be retried, and only a crash is run again."""
    keep = slot_retention(slots, policy.lease)
    window = policy.window
    if not declared_window:
        window = lasting(keep * MICROSECOND)
    elif window.kind not in ("forever", "lasting") or (window.kind == "lasting" and window.length < keep):
        raise ConfigurationError(
            f"the window ({window}) is too short for a schedule: a late run could come twice",
            hint=f"leave it out, or keep slots for catch_up_age + lease + 1 day: {format_duration(keep)}",
        )
    final = policy.final
    if policy.retry is None and "final" not in settings and not final:
        final = (Exception, TimeoutError)
    elif policy.retry is not None and not any(issubclass(TimeoutError, one) for one in policy.retry):
        final = (*final, TimeoutError)  # a timeout is vague, and would be tried again although nobody asked for it
    wait = policy.wait if "wait" in settings else slots.catch_up_age
    return replace(
        policy, window=window, final=final, wait=wait, on_running="raise", on_done="replay", fingerprint="none"
    )
