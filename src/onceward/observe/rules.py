"""The rules: which figures need a person, and what that person should do. Pure: figures in, broken rules out."""

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
    """From where on a figure needs a person. Each is the last value that is still well."""

    claim_errors: int = 10
    """In an hour, in all scopes."""

    renewal_failures: int = 5
    """In an hour, in all scopes."""

    old_pending: int = 3
    """PENDING records that were claimed longer ago than `old_pending_age`, in all scopes."""

    old_pending_age: int = HOUR // 2
    """In µs; written as a duration, "30m"."""

    replay_rate: float = 0.05
    """Of the calls of a day, by operation."""

    replay_rate_calls: int = 20
    """... if there were at least so many: below that, a single replay would be more than 5 %."""

    no_replay_days: int = 14
    """Days without a single replay, by operation ..."""

    no_replay_executions: int = 1_000
    """... although there were at least so many executions."""

    stale: int = 20
    """Stale events in an hour, by operation ..."""

    stale_factor: float = 5
    """... if that is also more than so many times the mean hour of the day before."""

    unprotected: int = 0
    """In a day, in all scopes."""

    replays_expected: tuple[str, ...] = ()
    """Operations, "email" or "shop/email", whose replays are the point: both rules about the replay rate pass by."""

    alert_window: int = DAY * HOUR
    """In µs; written as a duration, "24h". For so long an alert is not repeated."""


NOT_ZERO: Final = {"no_replay_days": "14", "alert_window": "24h"}
"""Spans that must not be empty, and their defaults."""

DURATIONS: Final = ("old_pending_age", "alert_window")


def thresholds_of(table: Mapping[str, Any], source: str = "rules") -> Thresholds:
    """Thresholds as a file or a caller writes them; what is left out keeps its default."""
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
    _refuse_senseless(found, source)
    return replace(found, replays_expected=tuple(map(escape, found.replays_expected)))  # as scopes are shown


def _refuse_senseless(found: Thresholds, source: str) -> None:
    for name in Thresholds.__struct_fields__:
        value = getattr(found, name)
        if isinstance(value, tuple):
            continue
        if not math.isfinite(value):
            raise ConfigurationError(f"{source}: {name} is no number that a figure could pass")
        if value < 0:
            raise ConfigurationError(f"{source}: {name} is negative", hint="0 is the strictest")
        if not value and name in NOT_ZERO:
            raise ConfigurationError(f"{source}: {name} is 0", hint=f"leave it out: it is {NOT_ZERO[name]} then")
    if found.replay_rate > 1:
        raise ConfigurationError(
            f"{source}: a replay_rate of {found.replay_rate:g} is never reached", hint="0.05 is 5 %"
        )
    if found.no_replay_days > MOST_DAYS:
        raise ConfigurationError(
            f"{source}: counters are kept for 30 days, so nothing is known about {found.no_replay_days}",
            hint=f"no_replay_days may be {MOST_DAYS} at most",
        )


MOST_DAYS: Final = 28
"""Of the days that counters are kept for."""


def _span(value: Duration, what: str) -> int:
    return microseconds(value, what)


class Figures(Struct, frozen=True):
    """What the rules look at: all that is counted, and how many records are PENDING for too long, by scope."""

    tally: CounterTotals
    old_pending: Mapping[str, int]


class Broken(Struct, frozen=True):
    """A rule that does not hold: in which scope (empty: in all together), by which figure, and what to do."""

    rule: str
    scope: str
    figure: float
    limit: float
    said: str
    todo: str

    @property
    def runbook(self) -> str:
        """Where to read on."""
        return f"{RUNBOOKS}#{self.rule.replace('_', '-')}"

    def __str__(self) -> str:
        where = f" in {self.scope}" if self.scope else ""
        return f"{self.rule}{where}: {self.said}. {self.todo}"


class Rule(Struct, frozen=True):
    """One rule: its name, what it says, what to do when it is broken, and how it is looked at."""

    name: str
    todo: str
    broken: Callable[[Figures, Thresholds], Iterator[tuple[str, float, float, str]]]
    by_counters: bool = True
    """It knows only of scopes whose programs count; the others it cannot judge."""


def check(figures: Figures, thresholds: Thresholds) -> list[Broken]:
    """Every rule that is broken, in the order of the rules."""
    by_operation = Figures(figures.tally.by_operation(), figures.old_pending)
    return [
        Broken(rule.name, scope, figure, limit, said, rule.todo)
        for rule in RULES
        for scope, figure, limit, said in rule.broken(by_operation, thresholds)
    ]


Findings = Iterator[tuple[str, float, float, str]]
"""Scope, figure, limit, and the figure in words."""


def _worst_hour(tally: CounterTotals, name: str, scope: str | None = None) -> int:
    """In the hour that has not ended, or in the one before: trouble at the end of an hour shall be seen, too."""
    return max(tally.at(hour, (name,), scope) for hour in (tally.latest - 1, tally.latest))


def _an_hour(name: str, what: str) -> Callable[[Figures, Thresholds], Findings]:
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
        replayed, executed = (_of_a_day(figures.tally, scope, name) for name in ("replayed", "executed"))
        executed += _of_a_day(figures.tally, scope, "applied")
        rate = replay_rate(replayed, executed)
        enough = replayed + executed >= thresholds.replay_rate_calls
        if rate is not None and enough and rate > thresholds.replay_rate:
            said = f"{rate:.1%} of the day's {replayed + executed} calls were replays, more than "
            yield scope, rate, thresholds.replay_rate, f"{said}{thresholds.replay_rate:.1%}"


def _no_replay(figures: Figures, thresholds: Thresholds) -> Findings:
    tally, hours = figures.tally, thresholds.no_replay_days * DAY
    for scope in _watched(tally, thresholds):
        begun = tally.begun(scope)
        executed = tally.total("executed", scope, hours=hours)
        replayed = tally.total("replayed", scope, hours=hours)
        long_enough = begun is not None and begun <= tally.latest - hours
        if long_enough and not replayed and executed >= max(thresholds.no_replay_executions, 1):
            said = f"{executed} executions in {thresholds.no_replay_days} days, and not one replay"
            yield scope, executed, thresholds.no_replay_executions, said


def _stale_spike(figures: Figures, thresholds: Thresholds) -> Findings:
    tally = figures.tally
    for scope in tally.scopes:
        for hour in (tally.latest, tally.latest - 1):
            number = tally.at(hour, ("stale",), scope)
            mean = sum(tally.at(one, ("stale",), scope) for one in range(hour - DAY, hour)) / DAY
            if number > thresholds.stale and number > thresholds.stale_factor * mean:
                limit = max(thresholds.stale, thresholds.stale_factor * mean)
                said = f"{number} stale events in an hour; the mean hour of the day before had {mean:.1f}"
                yield scope, number, limit, said
                break


def _unprotected(figures: Figures, thresholds: Thresholds) -> Findings:
    number, limit = figures.tally.total("unprotected", hours=DAY), thresholds.unprotected
    if number > limit:
        yield "", number, limit, f"{number} runs without protection in a day, more than {limit}"


def _of_a_day(tally: CounterTotals, scope: str, name: str) -> int:
    return tally.total(name, scope, hours=DAY)


def _watched(tally: CounterTotals, thresholds: Thresholds) -> Iterator[str]:
    """Operations whose replay rate means something. Slots of schedules, and alerts, are meant to be replayed."""
    for scope in tally.scopes:
        operation = scope.partition("/")[2]
        if operation == ALERT or operation.startswith(SCHEDULE_PREFIX):
            continue
        if not {scope, operation, operation.partition("#")[0]} & set(thresholds.replays_expected):
            yield scope


RULES: Final = (
    Rule(
        "claim_errors",
        "Is the store up, reachable and quick enough? See onceward doctor; if it is, raise wait= or shorten the work.",
        _an_hour("claim_errors", "claims without an answer, or beyond their time to wait,"),
    ),
    Rule(
        "renewal_failures",
        "Workers cannot reach the store while they work. Look at its load and the network; a longer lease gives time.",
        _an_hour("renewal_failures", "failed renewals"),
    ),
    Rule(
        "old_pending",
        "See onceward ls --state PENDING --claimed-before 30m: workers hang, or died and nothing was delivered again.",
        _old_pending,
        by_counters=False,
    ),
    Rule(
        "replay_rate",
        "Whoever delivers repeats too much: look at its time-outs, retries and acknowledgements.",
        _replay_rate,
    ),
    Rule(
        "no_replay",
        "The key is probably wrong: does it hold a time, a random id or a delivery's own id? See onceward ls.",
        _no_replay,
    ),
    Rule(
        "stale_spike",
        "Events come late or twice: look for a clock that is wrong, a replayed topic or a second pipeline.",
        _stale_spike,
    ),
    Rule(
        "unprotected",
        "Each may have been done twice: find their keys in the log (event unprotected) and look at each.",
        _unprotected,
    ),
)
"""In the order in which they are told."""
