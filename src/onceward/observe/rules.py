"""Alert rules: which figures need attention, and what to do. Pure functions from figures to broken rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onceward.errors import ConfigurationError
from onceward.keys.readable import escape
from onceward.protocol.counters import HOUR, CounterTotals, replay_rate
from onceward.protocol.duration import Duration, format_duration, microseconds
from onceward.protocol.operation_names import ALERT, SCHEDULE_PREFIX
from onceward.protocol.suggest import did_you_mean

DAY: Final = 24
"""Hours."""

RUNBOOKS: Final = "docs/howto/runbooks.md"


class Thresholds(Struct, frozen=True, kw_only=True):
    """The thresholds of the rules. Each is the last value that is still acceptable."""

    claim_errors: int = 10
    """Per hour, in all scopes."""

    renewal_failures: int = 5
    """Per hour, in all scopes."""

    old_pending: int = 3
    """PENDING records that were claimed longer ago than `old_pending_age`, in all scopes."""

    old_pending_age: int = HOUR // 2
    """In µs; written as a duration, "30m"."""

    replay_rate: float = 0.05
    """Share of the calls of a day, by operation."""

    replay_rate_calls: int = 20
    """... if there were at least this many calls: with fewer, a single replay would be more than 5 %."""

    no_replay_days: int = 14
    """Days without a single replay, by operation ..."""

    no_replay_executions: int = 1_000
    """... although there were at least this many executions."""

    stale: int = 20
    """Stale events per hour, by operation ..."""

    stale_factor: float = 5
    """... if that is also more than this factor times the hourly mean of the previous day."""

    unprotected: int = 0
    """Per day, in all scopes."""

    replays_expected: tuple[str, ...] = ()
    """Operations, "email" or "shop/email", that are expected to be replayed: both replay rules skip them."""

    alert_window: int = DAY * HOUR
    """In µs; written as a duration, "24h". An alert is not repeated within this time."""


NOT_ZERO: Final = {"no_replay_days": "14", "alert_window": "24h"}
"""Durations that must not be 0, and their defaults."""

DURATIONS: Final = ("old_pending_age", "alert_window")


def parse_thresholds(table: Mapping[str, Any], source: str = "rules") -> Thresholds:
    """Parse thresholds from a file or a caller. Omitted ones keep their defaults."""
    given: dict[str, Any] = {}
    for written, value in table.items():
        name = written.replace("-", "_")
        if name not in Thresholds.__struct_fields__:
            raise ConfigurationError(
                f"{source}: there is no threshold {written!r}",
                hint=did_you_mean(name, Thresholds.__struct_fields__, "thresholds are"),
            )
        given[name] = _span(value, f"{source}: {written}") if name in DURATIONS else value
    try:
        found = msgspec.convert(given, Thresholds)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{source}: {error}", hint="thresholds are numbers, durations and a list") from error
    _validate(found, source)
    return replace(found, replays_expected=tuple(map(escape, found.replays_expected)))  # as scopes are shown


def _validate(found: Thresholds, source: str) -> None:
    for name in Thresholds.__struct_fields__:
        value = getattr(found, name)
        if isinstance(value, tuple):
            continue
        if not math.isfinite(value):
            raise ConfigurationError(f"{source}: {name} must be a finite number")
        if value < 0:
            raise ConfigurationError(f"{source}: {name} is negative", hint="0 is the strictest")
        if not value and name in NOT_ZERO:
            raise ConfigurationError(f"{source}: {name} is 0", hint=f"omit it to use the default, {NOT_ZERO[name]}")
    if found.replay_rate > 1:
        raise ConfigurationError(
            f"{source}: a replay_rate of {found.replay_rate:g} is never reached", hint="0.05 is 5 %"
        )
    if found.no_replay_days > MAX_NO_REPLAY_DAYS:
        raise ConfigurationError(
            f"{source}: counters are kept for 30 days, so no_replay_days={found.no_replay_days} cannot be checked",
            hint=f"use at most {MAX_NO_REPLAY_DAYS}",
        )


MAX_NO_REPLAY_DAYS: Final = 28
"""Less than the retention of counters, 30 days."""


def _span(value: Duration, what: str) -> int:
    return microseconds(value, what)


class Figures(Struct, frozen=True):
    """The input of the rules: all counters, and how many records are PENDING for too long, by scope."""

    tally: CounterTotals
    old_pending: Mapping[str, int]


class Broken(Struct, frozen=True):
    """A broken rule: its scope (empty: all scopes), the figure, the limit, and what to do."""

    rule: str
    scope: str
    figure: float
    limit: float
    said: str
    todo: str

    @property
    def runbook(self) -> str:
        """The section of the runbook."""
        return f"{RUNBOOKS}#{self.rule.replace('_', '-')}"

    def __str__(self) -> str:
        where = f" in {self.scope}" if self.scope else ""
        return f"{self.rule}{where}: {self.said}. {self.todo}"


class Rule(Struct, frozen=True):
    """One rule: its name, what to do if it is broken, and how it is checked."""

    name: str
    todo: str
    broken: Callable[[Figures, Thresholds], Iterator[tuple[str, float, float, str]]]
    by_counters: bool = True
    """Whether the rule uses counters: it cannot check scopes without counters."""


def check(figures: Figures, thresholds: Thresholds) -> list[Broken]:
    """Return the broken rules, in the order of RULES."""
    by_operation = Figures(figures.tally.by_operation(), figures.old_pending)
    return [
        Broken(rule.name, scope, figure, limit, said, rule.todo)
        for rule in RULES
        for scope, figure, limit, said in rule.broken(by_operation, thresholds)
    ]


Findings = Iterator[tuple[str, float, float, str]]
"""Scope, figure, limit, and a sentence about the figure."""


def _worst_hour(tally: CounterTotals, name: str, scope: str | None = None) -> int:
    """Return the maximum of the current and the previous hour, to catch problems at the end of an hour."""
    return max(tally.at(hour, (name,), scope) for hour in (tally.latest - 1, tally.latest))


def _per_hour(name: str, what: str) -> Callable[[Figures, Thresholds], Findings]:
    def broken(figures: Figures, thresholds: Thresholds) -> Findings:
        number, limit = _worst_hour(figures.tally, name), getattr(thresholds, name)
        if number > limit:
            yield "", number, limit, f"{number} {what} in an hour, more than {limit}"

    return broken


def _old_pending(figures: Figures, thresholds: Thresholds) -> Findings:
    number, limit = sum(figures.old_pending.values()), thresholds.old_pending
    if number > limit:
        age = format_duration(thresholds.old_pending_age)
        where = ", ".join(sorted(figures.old_pending))
        yield "", number, limit, f"{number} records are PENDING for more than {age}, more than {limit} ({where})"


def _replay_rate(figures: Figures, thresholds: Thresholds) -> Findings:
    for scope in _watched(figures.tally, thresholds):
        replayed, executed = (_in_a_day(figures.tally, scope, name) for name in ("replayed", "executed"))
        executed += _in_a_day(figures.tally, scope, "applied")
        rate = replay_rate(replayed, executed)
        enough = replayed + executed >= thresholds.replay_rate_calls
        if rate is not None and enough and rate > thresholds.replay_rate:
            said = f"{rate:.1%} of the day's {replayed + executed} calls were replays, more than "
            yield scope, rate, thresholds.replay_rate, f"{said}{thresholds.replay_rate:.1%}"


def _no_replay(figures: Figures, thresholds: Thresholds) -> Findings:
    tally, hours = figures.tally, thresholds.no_replay_days * DAY
    for scope in _watched(tally, thresholds):
        first_hour = tally.first_hour(scope)
        executed = tally.total("executed", scope, hours=hours)
        replayed = tally.total("replayed", scope, hours=hours)
        long_enough = first_hour is not None and first_hour <= tally.latest - hours
        if long_enough and not replayed and executed >= max(thresholds.no_replay_executions, 1):
            said = f"{executed} executions in {thresholds.no_replay_days} days, and no replay"
            yield scope, executed, thresholds.no_replay_executions, said


def _stale_spike(figures: Figures, thresholds: Thresholds) -> Findings:
    tally = figures.tally
    for scope in tally.scopes:
        for hour in (tally.latest, tally.latest - 1):
            number = tally.at(hour, ("stale",), scope)
            mean = sum(tally.at(one, ("stale",), scope) for one in range(hour - DAY, hour)) / DAY
            if number > thresholds.stale and number > thresholds.stale_factor * mean:
                limit = max(thresholds.stale, thresholds.stale_factor * mean)
                said = f"{number} stale events in an hour; the hourly mean of the previous day is {mean:.1f}"
                yield scope, number, limit, said
                break


def _unprotected(figures: Figures, thresholds: Thresholds) -> Findings:
    number, limit = figures.tally.total("unprotected", hours=DAY), thresholds.unprotected
    if number > limit:
        yield "", number, limit, f"{number} runs without protection in a day, more than {limit}"


def _in_a_day(tally: CounterTotals, scope: str, name: str) -> int:
    return tally.total(name, scope, hours=DAY)


def _watched(tally: CounterTotals, thresholds: Thresholds) -> Iterator[str]:
    """Return operations whose replay rate is meaningful. Slots of schedules and alerts are replayed by design."""
    for scope in tally.scopes:
        operation = scope.partition("/")[2]
        if operation == ALERT or operation.startswith(SCHEDULE_PREFIX):
            continue
        if not {scope, operation, operation.partition("#")[0]} & set(thresholds.replays_expected):
            yield scope


RULES: Final = (
    Rule(
        "claim_errors",
        "Check that the store is up, reachable and fast (onceward doctor). If so, raise wait= or shorten the work.",
        _per_hour("claim_errors", "claims without an answer, or with a timed-out wait,"),
    ),
    Rule(
        "renewal_failures",
        "Workers cannot reach the store while they work. Check its load and the network; a longer lease helps.",
        _per_hour("renewal_failures", "failed renewals"),
    ),
    Rule(
        "old_pending",
        "See onceward ls --state PENDING --claimed-before 30m: workers hang, or died without a redelivery.",
        _old_pending,
        by_counters=False,
    ),
    Rule(
        "replay_rate",
        "The sender redelivers too often: check its timeouts, retries and acknowledgements.",
        _replay_rate,
    ),
    Rule(
        "no_replay",
        "The key is probably wrong: does it contain a time, a random id or a delivery id? See onceward ls.",
        _no_replay,
    ),
    Rule(
        "stale_spike",
        "Events arrive late or twice: look for a wrong clock, a replayed topic or a second pipeline.",
        _stale_spike,
    ),
    Rule(
        "unprotected",
        "Each may have run twice: find the keys in the log (event unprotected) and check them.",
        _unprotected,
    ),
)
"""In the order in which they are reported."""
