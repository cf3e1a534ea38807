"""The definition of a schedule: its name, its slots, and what happens if a slot is late or a run takes long."""

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
MISSED_AFTER_GRACES = 2
"""A slot that was not started is missed after this many times the grace. Between the grace and that time, no runner
starts it or counts it as missed. So two runners never disagree about it."""


class SlotChoices(TypedDict, total=False):
    """The options of slots, as users write them."""

    overlap: Overlap
    catch_up: CatchUp
    catch_up_age: Duration
    catch_up_count: int
    grace: Duration
    early: Duration


class TickChoices(CommonSettings, SlotChoices, total=False):
    """All options of a schedule, as users write them."""


class Slots(Struct, frozen=True):
    """The checked options of slots. Durations are in µs."""

    overlap: Overlap = "skip"
    catch_up: CatchUp = "none"
    catch_up_age: int = DAY
    catch_up_count: int = 100
    grace: int = 60 * 1_000_000
    early: int = 30 * 1_000_000


class Schedule(Struct, frozen=True, dict=True):
    """A named sequence of slots. A run is identified by (name, slot), wherever it is started."""

    name: str
    scope: Scope
    policy: Policy
    slots: Slots = Slots()
    timetable: Timetable | None = None

    def key(self, slot: int) -> Key:
        """Return the key of one run: the scheduled instant in UTC, regardless of the pattern's time zone."""
        at = datetime_of(slot)
        text = at.isoformat(timespec="auto" if slot % 60_000_000 else "minutes").removesuffix("+00:00")
        return make_key(self.scope, at, f"{text}Z")

    @cached_property
    def overlap_lock(self) -> Key:
        """The key of the lock that prevents overlapping runs."""
        return make_key(self.scope, "running")

    @cached_property
    def pause(self) -> Key:
        """The key of the record that pauses the schedule."""
        return make_key(self.scope, "paused")

    @cached_property
    def requested(self) -> Key:
        """The key of the record that requests a run outside the pattern."""
        return make_key(self.scope, "requested")

    @cached_property
    def cursors(self) -> tuple[Key, Key]:
        """The keys of the two records that store the cursor. Another pattern has another cursor."""
        table = self.table
        parts = [("cursor", table.pattern.text, table.zone, number) for number in (0, 1)]
        texts = [f"cursor {table.pattern.text} {table.zone} {'ab'[number]}" for number in (0, 1)]
        first, second = (make_key(self.scope, part, text) for part, text in zip(parts, texts, strict=True))
        return first, second

    @property
    def table(self) -> Timetable:
        if self.timetable is None:
            raise ConfigurationError(
                f"the schedule {self.name!r} has no pattern", hint='pass pattern="*/5 * * * *", or scheduled_at='
            )
        return self.timetable

    def local(self, slot: int) -> datetime:
        """Return the scheduled time in the schedule's time zone."""
        at = datetime_of(slot)
        return at if self.timetable is None else at.astimezone(self.timetable.time_zone)

    def slot_at(self, now: int) -> int | None:
        """Return the slot of a tick at this time: the latest slot, or the next one if the tick is a little early.

        External schedulers use their own clocks. If such a clock is ahead of the store's, the tick arrives before its
        slot. If it were taken for a late tick of the previous slot, that slot could run now, in addition to the run by
        a machine with a correct clock.
        """
        latest, coming = self.table.latest(now), self.table.next(now)
        if coming is None:
            return latest
        early = self.slots.early if latest is None else min(self.slots.early, (coming - latest) // 2)
        return coming if coming - now <= early else latest


class Ran(Struct, frozen=True):
    """The result of one run of the schedule `name` in this process, as passed to `on_result`.

    `scheduled_at` is the time of the slot, and `outcome` what happened. `late`: the slot was missed at its time, and
    caught up.
    """

    name: str
    scheduled_at: datetime
    outcome: Outcome[Any]
    late: bool


class Missed(Struct, frozen=True):
    """Slots of the schedule `name` that were missed: they are not run.

    `count` is how many, from `first` to `last`. `more` is true if not all of them were counted.
    """

    name: str
    count: int
    first: datetime
    last: datetime
    more: bool = False

    def __str__(self) -> str:
        runs = "run" if self.count == 1 else "runs"
        count = f"{self.count}{'+' if self.more else ''}"
        return f"{count} {runs} missed, {format_time(self.first)} to {format_time(self.last)}"


def format_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="auto" if at.second or at.microsecond else "minutes")[:-6] + "Z"


def slot_of(scheduled_at: datetime | str) -> int:
    """Return the scheduled instant. A time without a zone is ambiguous and raises InvalidKey."""
    if isinstance(scheduled_at, str):
        try:
            scheduled_at = datetime.fromisoformat(scheduled_at)
        except ValueError as error:
            raise InvalidKey(
                f"scheduled_at is not a valid time: {scheduled_at!r}", hint="such as 2026-03-01T08:05:00Z"
            ) from error
    if not isinstance(scheduled_at, datetime) or scheduled_at.utcoffset() is None:
        raise InvalidKey(f"scheduled_at needs a time zone: {scheduled_at!r}", hint="datetime(…, tzinfo=UTC), or …Z")
    return instant_of(scheduled_at)


def checked_slots(choices: SlotChoices) -> Slots:
    """Check the options, and convert durations to µs."""
    checked: dict[str, Any] = {}
    for name, value in choices.items():
        if name in _ALLOWED and value not in _ALLOWED[name]:
            raise ConfigurationError(
                f"{name} cannot be {value!r}", hint=f"choose one of: {', '.join(map(repr, _ALLOWED[name]))}"
            )
        if name == "catch_up_count" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ConfigurationError(f"{name} must be at least 1, not {value!r}")
        checked[name] = microseconds(value, name) if name in _DURATIONS else value  # type: ignore[arg-type]  # checked
    slots = Slots(**checked)
    if not slots.grace:
        raise ConfigurationError("a grace of 0 would miss every slot", hint='such as grace="60s"')
    if slots.catch_up_age < MISSED_AFTER_GRACES * slots.grace:
        raise ConfigurationError(
            f"catch_up_age ({format_duration(slots.catch_up_age)}) must be at least "
            f"{MISSED_AFTER_GRACES} times the grace ({format_duration(slots.grace)})"
        )
    return slots


_DURATIONS = ("catch_up_age", "grace", "early")
_ALLOWED: dict[str, tuple[str, ...]] = {"overlap": get_args(Overlap), "catch_up": get_args(CatchUp)}


def slot_policy(policy: Policy, slots: Slots, settings: CommonSettings, *, declared_window: bool) -> Policy:
    """Return the policy of one run. A failure is final unless `retry=` declares otherwise; a crashed run is rerun."""
    retention = slots.catch_up_age + policy.lease + DAY  # longer than the time in which a runner may start the run
    window = policy.window
    if not declared_window:
        window = lasting(retention * MICROSECOND)
    elif window.kind not in ("forever", "lasting") or (window.kind == "lasting" and window.length < retention):
        raise ConfigurationError(
            f"the window ({window}) is too short for a schedule: a late run could happen twice",
            hint=f"leave it out, or keep slots for catch_up_age + lease + 1 day: {format_duration(retention)}",
        )
    final = policy.final
    if policy.retry is None and "final" not in settings and not final:
        final = (Exception, TimeoutError)
    elif policy.retry is not None and not any(issubclass(TimeoutError, one) for one in policy.retry):
        # The effect of a timeout is unknown. Without this, it would be retried although `retry=` does not list it.
        final = (*final, TimeoutError)
    wait = policy.wait if "wait" in settings else slots.catch_up_age
    return replace(
        policy, window=window, final=final, wait=wait, on_running="raise", on_done="replay", fingerprint="none"
    )
