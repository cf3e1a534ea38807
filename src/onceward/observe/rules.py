"""Alert rules: which figures need attention, and what to do. Pure functions from figures to broken rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from shlex import quote
from typing import Final

from msgspec import Struct

from onceward.protocol.counters import CounterTotals, replay_rate
from onceward.protocol.duration import format_duration
from onceward.protocol.operation_names import ALERT, SCHEDULE_PREFIX

from .thresholds import DAY, Thresholds

RUNBOOK_COMMAND: Final = "onceward runbook"
"""Prints a runbook of the installed package."""


class RecordFigures(Struct, frozen=True):
    """How many records have each problem, by operation.

    `parked_since` says when the oldest problem began, of those that the rule `parked` counts or will count.
    """

    old_pending: Mapping[str, int] = {}
    parked: Mapping[str, int] = {}
    failed_final: Mapping[str, int] = {}
    stuck_schedules: Mapping[str, int] = {}
    parked_since: Mapping[str, int] = {}


class Figures(Struct, frozen=True):
    """The input of the rules: all counters, and the problems of records."""

    tally: CounterTotals
    records: RecordFigures = RecordFigures()


class Broken(Struct, frozen=True):
    """A broken `rule`, in one `scope` (empty: in all of them).

    `figure` was measured and `limit` is its threshold. `said` is a sentence about it, and `todo` is what to do.
    """

    rule: str
    scope: str
    figure: float
    limit: float
    said: str
    todo: str

    @property
    def runbook(self) -> str:
        """The command that prints the runbook."""
        return f"{RUNBOOK_COMMAND} {self.rule.replace('_', '-')}"

    def __str__(self) -> str:
        where = f" in {self.scope}" if self.scope else ""
        return f"{self.rule}{where}: {self.said}. {self.todo}"


class Rule(Struct, frozen=True):
    """One rule: its name, what to do if it is broken, and how it is checked."""

    name: str
    todo: str
    """What to do, with the command to run. It may contain `{scope}` and the names of durations in the thresholds."""

    broken: Callable[[Figures, Thresholds], Iterator[tuple[str, float, float, str]]]
    by_counters: bool = True
    """Whether the rule uses counters: it cannot check scopes without counters."""


def check(figures: Figures, thresholds: Thresholds) -> list[Broken]:
    """Return the broken rules, in the order of RULES."""
    by_operation = Figures(figures.tally.by_operation(), figures.records)
    return [
        Broken(rule.name, scope, figure, limit, said, todo_text(rule, thresholds, quote(scope)))
        for rule in RULES
        for scope, figure, limit, said in rule.broken(by_operation, thresholds)
    ]


def todo_text(rule: Rule, thresholds: Thresholds, scope: str) -> str:
    """Return what to do, with the scope and the thresholds filled in."""
    return rule.todo.format(
        scope=scope,
        old_pending_age=format_duration(thresholds.old_pending_age),
        stuck_schedule_age=format_duration(thresholds.stuck_schedule_age),
    )


Findings = Iterator[tuple[str, float, float, str]]
"""Scope, figure, limit, and a sentence about the figure."""


def _worst_hour(tally: CounterTotals, name: str, scope: str | None = None) -> int:
    """Return the maximum of the current and the previous hour, to catch problems at the end of an hour."""
    return max(tally.at(hour, (name,), scope) for hour in (tally.latest - 1, tally.latest))


def _counted(number: float, one: str, many: str, limit: float) -> str:
    """Return the number with its noun, and the limit unless it is 0: then any number is too many."""
    text = f"{number} {one if number == 1 else many}"
    return f"{text}, more than {limit}" if limit else text


def _per_hour(name: str, what: str) -> Callable[[Figures, Thresholds], Findings]:
    def broken(figures: Figures, thresholds: Thresholds) -> Findings:
        number, limit = _worst_hour(figures.tally, name), getattr(thresholds, name)
        if number > limit:
            yield "", number, limit, f"{number} {what} in an hour, more than {limit}"

    return broken


def _old_pending(figures: Figures, thresholds: Thresholds) -> Findings:
    found, limit = figures.records.old_pending, thresholds.old_pending
    number = sum(found.values())
    if number > limit:
        age = format_duration(thresholds.old_pending_age)
        said = f"{number} records are PENDING for more than {age}, more than {limit}"
        yield "", number, limit, f"{said}{_listed(found)}"


def _listed(names: Mapping[str, int]) -> str:
    """Return the names in parentheses; nothing if there are none."""
    text = ", ".join(sorted(name for name in names if name))
    return f" ({text})" if text else ""


def _by_operation(name: str, one: str, many: str) -> Callable[[Figures, Thresholds], Findings]:
    """Return a rule about the number of records with a problem, by operation."""

    def broken(figures: Figures, thresholds: Thresholds) -> Findings:
        limit = getattr(thresholds, name)
        for scope, number in sorted(getattr(figures.records, name).items()):
            if number > limit:
                yield scope, number, limit, _counted(number, one, many, limit)

    return broken


def _per_day(rule: str, counter: str, one: str, many: str) -> Callable[[Figures, Thresholds], Findings]:
    """Return a rule about a counter of the last day, by operation."""

    def broken(figures: Figures, thresholds: Thresholds) -> Findings:
        limit = getattr(thresholds, rule)
        for scope in figures.tally.scopes:
            number = _in_a_day(figures.tally, scope, counter)
            if number > limit:
                yield scope, number, limit, _counted(number, f"{one} in a day", f"{many} in a day", limit)

    return broken


def _stuck_schedules(figures: Figures, thresholds: Thresholds) -> Findings:
    found, limit = figures.records.stuck_schedules, thresholds.stuck_schedules
    number, age = sum(found.values()), format_duration(thresholds.stuck_schedule_age)
    if number > limit:
        verb = "schedule is" if number == 1 else "schedules are"
        yield "", number, limit, f"{number} {verb} overdue by more than {age}{_listed(found)}"


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
        what = "without protection in a day"
        yield "", number, limit, _counted(number, f"run {what}", f"runs {what}", limit)


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
        "parked",
        "Run `onceward ls --state PARKED`, and `onceward ls --state PENDING` for those shown as PENDING lapsed. Then "
        "run `onceward explain KEY` for each: it says how to resolve it.",
        _by_operation(
            "parked",
            "record is PARKED, or PENDING after a crash with an unknown effect",
            "records are PARKED, or PENDING after a crash with an unknown effect",
        ),
        by_counters=False,
    ),
    Rule(
        "failed_final",
        "Run `onceward ls --state FAILED` and `onceward explain KEY`. After fixing the cause, `onceward retry KEY`.",
        _by_operation(
            "failed_final",
            "record failed in the last day and is not retried",
            "records failed in the last day and are not retried",
        ),
        by_counters=False,
    ),
    Rule(
        "unknown",
        "Find the keys in the log (event unknown or lost), run `onceward explain KEY`, and check the effect of each.",
        _per_day("unknown", "unknown", "unknown outcome", "unknown outcomes"),
    ),
    Rule(
        "dead_letters",
        "Fix the cause and send the messages again. `onceward ls --state FAILED` shows why their work failed.",
        _per_day("dead_letters", "dead_lettered", "dead letter", "dead letters"),
    ),
    Rule(
        "stuck_schedules",
        "Is a runner alive? Start `onceward schedule MODULE:APP`. If the schedule was removed, delete its cursor: see "
        "`onceward runbook stuck-schedules`.",
        _stuck_schedules,
        by_counters=False,
    ),
    Rule(
        "claim_errors",
        "Run `onceward doctor`: is the store up, reachable and fast? If so, raise wait= or shorten the work.",
        _per_hour("claim_errors", "claims without an answer, or with a timed-out wait,"),
    ),
    Rule(
        "renewal_failures",
        "Workers cannot reach the store while they work. Run `onceward doctor` and check the store's load and the "
        "network; a longer lease helps.",
        _per_hour("renewal_failures", "failed renewals"),
    ),
    Rule(
        "old_pending",
        "Run `onceward ls --state PENDING --claimed-before {old_pending_age}`: workers hang, or died without a "
        "redelivery.",
        _old_pending,
        by_counters=False,
    ),
    Rule(
        "replay_rate",
        "Run `onceward stats --since 7d --scope {scope}`. The sender redelivers too often: check its timeouts, retries "
        "and acknowledgements.",
        _replay_rate,
    ),
    Rule(
        "no_replay",
        "The key is probably wrong: does it contain a time, a random id or a delivery id? Run "
        "`onceward ls --scope {scope} --limit 20`.",
        _no_replay,
    ),
    Rule(
        "stale_spike",
        "Run `onceward stats --since 24h --scope {scope}`. Events arrive late or twice: look for a wrong clock, a "
        "replayed topic or a second pipeline.",
        _stale_spike,
    ),
    Rule(
        "unprotected",
        "Each may have run twice: find the keys in the log (event unprotected), run `onceward explain KEY`, and check "
        "the effect of each.",
        _unprotected,
    ),
)
"""In the order in which they are reported: first what needs an operator."""
