"""Counters: how often each outcome and each problem occurred, by scope and hour.

A process writes one row per hour, always with everything that it has counted in that hour so far. So a row that is
written twice, because a reply was lost, counts once. A killed process loses only the counts since its last write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from onceward.errors import RecordBroken

HOUR: Final = 3_600_000_000
"""In µs, like every time in a store."""

COUNTS_RETENTION: Final = 30 * 24 * HOUR
"""More than twice the longest period that an alert rule looks at."""

OUTCOMES: Final = {
    "executed": "done now, and recorded",
    "replayed": "done before: the stored result was returned",
    "running": "another worker was already processing the key",
    "mismatch": "the key was used before with another payload",
    "failed": "the work raised, or a stored failure was returned",
    "parked": "it is unknown how an attempt ended; an operator must resolve it",
    "unknown": "done, but the store did not confirm it, or another worker had taken over",
    "applied": "the event became the state of its entity",
    "stale": "the event was older than the state of its entity",
}
"""Outcomes of calls and events."""

PROBLEMS: Final = {
    "claim_errors": "the store did not answer a claim, or the wait for another worker timed out",
    "renewal_failures": "a lease could not be renewed; the renewal was retried",
    "unprotected": "run without a claim, as configured for a store outage or a missing key",
    "would_skip": "run although it is a duplicate, because the mode is observe",
    "switched_off": "run without a claim, because the mode is off",
    "rejected": "a request or message could not be parsed, so nothing was done",
    "dead_lettered": "a message was moved to the dead letter queue",
}
"""Problems on the way to an outcome."""

COUNTER_NAMES: Final = {**OUTCOMES, **PROBLEMS}
"""Every counter and its description. The names are the same in the store, `stats`, Prometheus and OpenTelemetry."""

Counts = dict[str, dict[str, int]]
"""Counts by scope and counter name."""

_NAMES: Final = {
    "completed": "executed",
    "skipped": "replayed",
    "mismatch": "mismatch",
    "failed": "failed",
    "parked": "parked",
    "unknown": "unknown",
    "applied": "applied",
    "stale": "stale",
    "claim_failed": "claim_errors",
    "renewal_failed": "renewal_failures",
    "unprotected": "unprotected",
    "would_skip": "would_skip",
    "switched_off": "switched_off",
    "rejected": "rejected",
    "dead_lettered": "dead_lettered",
}
_SKIPPED: Final = {"PENDING": "running", "FAILED": "failed", "PARKED": "parked"}


def counter_name(event: str, *, state: str = "", reason: str = "") -> str | None:
    """Return the counter of an event; None if the event is not counted.

    A lost lease is reported twice: by the heartbeat while the work still runs, and with a reason when the work ends.
    Only the second report counts.
    """
    if event == "skipped":
        return _SKIPPED.get(state, "replayed")
    if event == "lost":
        return "unknown" if reason else None
    return _NAMES.get(event)


def operation_of(scope: str) -> str:
    """Return the scope without its tenant, so that metric labels do not grow with the number of tenants."""
    return scope.partition("@")[0]


class CounterRow(Struct, frozen=True):
    """Everything that one process has counted in one hour so far. A row with a higher `number` replaces a lower one."""

    process: bytes
    hour: int
    number: int
    counts: Counts


class StoredCounts(Struct, frozen=True):
    """The counter rows of a store, and the store's time."""

    counter_rows: list[CounterRow]
    now: int


def oldest_kept_hour(now: int) -> int:
    """Return the first hour whose rows are kept."""
    return (now - COUNTS_RETENTION) // HOUR


def encode_counts(counts: Counts) -> bytes:
    return msgspec.json.encode(counts)


def decode_counts(data: bytes | str) -> Counts:
    try:
        return _read(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise RecordBroken(
            f"a counter row has invalid content ({error})", hint="was it edited by hand? delete that row"
        ) from error


class CounterTotals(Struct, frozen=True):
    """Counts of all processes, by hour, scope and name. `now` is the store's time, `since` the first complete hour."""

    now: int
    since: int
    hours: dict[int, Counts]
    """Counts by scope and counter name, for each hour since 1970 in which anything was counted."""

    @property
    def scopes(self) -> list[str]:
        """The scopes in which anything was counted, sorted."""
        return sorted({scope for counts in self.hours.values() for scope in counts})

    @property
    def latest(self) -> int:
        """The current hour, which has not ended yet."""
        return self.now // HOUR

    def series(self, names: Iterable[str], scope: str | None = None) -> list[int]:
        """Return the sum of the counters `names` for each hour, oldest first, in one `scope` or in all."""
        wanted = tuple(names)
        return [self.at(hour, wanted, scope) for hour in range(self.since, self.latest + 1)]

    def at(self, hour: int, names: Iterable[str], scope: str | None = None) -> int:
        """Return the sum of the counters `names` in one `hour` (since 1970), in one `scope` or in all."""
        counts = self.hours.get(hour, {})
        cells = counts.values() if scope is None else [counts.get(scope, {})]
        wanted = tuple(names)
        return sum(cell.get(name, 0) for cell in cells for name in wanted)

    def total(self, name: str, scope: str | None = None, *, hours: int | None = None) -> int:
        """Return the sum of a counter over all hours, or over the last `hours`, including the current one.

        `name` is that of the counter, such as `executed`. Without a `scope`, all scopes are added up.
        """
        first = 0 if hours is None else self.latest - hours + 1
        return sum(self.at(hour, (name,), scope) for hour in self.hours if hour >= first)

    def first_hour(self, scope: str) -> int | None:
        """Return the first hour (since 1970) in which anything was counted in this `scope`, or None."""
        return min((hour for hour, counts in self.hours.items() if scope in counts), default=None)

    def by_operation(self) -> CounterTotals:
        """Return the same totals with the tenants of each operation added up."""
        hours: dict[int, Counts] = {}
        for hour, counts in self.hours.items():
            for scope, cell in counts.items():
                _add(hours.setdefault(hour, {}).setdefault(operation_of(scope), {}), cell)
        return CounterTotals(self.now, self.since, hours)


def add_up(counted: StoredCounts, since: int) -> CounterTotals:
    """Add up the rows of all processes. Rows of future hours, left by a wrong clock, are ignored."""
    hours: dict[int, Counts] = {}
    for counter_row in counted.counter_rows:
        if counter_row.hour > counted.now // HOUR + 1:
            continue
        for scope, cell in counter_row.counts.items():
            _add(hours.setdefault(counter_row.hour, {}).setdefault(scope, {}), cell)
    return CounterTotals(counted.now, since, hours)


def _add(to: dict[str, int], cell: Mapping[str, int]) -> None:
    for name, number in cell.items():
        to[name] = to.get(name, 0) + number


def replay_rate(replayed: int, executed: int) -> float | None:
    """Return the share of calls that were replayed; None if there were no calls."""
    calls = replayed + executed
    return replayed / calls if calls else None


_read = msgspec.json.Decoder(
    Counts
).decode  # created here: two threads that create it at the same time would crash the process
