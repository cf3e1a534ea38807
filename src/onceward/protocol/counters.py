"""What is counted: how often each outcome and each trouble came, by scope and hour.

A process writes a sheet an hour, always with all that it has counted in that hour so far. So a sheet that is written
twice, because a reply was lost, counts once; and what a killed process had not written yet is all that is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from onceward.errors import StoreBroken

HOUR: Final = 3_600_000_000
"""In µs, like every time of a store."""

COUNTS_RETENTION: Final = 30 * 24 * HOUR
"""More than twice the longest look back that a rule takes."""

OUTCOMES: Final = {
    "executed": "done now, and recorded",
    "replayed": "done before: the stored result was the answer",
    "running": "somebody else was at it",
    "mismatch": "the key was used before with another payload",
    "failed": "it raised, or a stored failure was the answer",
    "parked": "nobody knows how an attempt ended; a person must say",
    "unknown": "done, but the store did not confirm it, or somebody had taken over",
    "applied": "the event became the state of its entity",
    "stale": "the event was older than the state of its entity",
}
"""What calls and events came to."""

PROBLEMS: Final = {
    "claim_errors": "no answer from the store to a claim, or the time to wait was over",
    "renewal_failures": "a lease could not be renewed; it was tried again",
    "unprotected": "run without a claim, as declared for when the store is down or there is no key",
    "rejected": "a request or message that could not be read, so nothing was done",
}
"""What went wrong on the way."""

COUNTER_NAMES: Final = {**OUTCOMES, **PROBLEMS}
"""Every name under which something is counted: the same in the store, in `stats`, Prometheus and OpenTelemetry."""

Counts = dict[str, dict[str, int]]
"""By scope and name."""

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
    "rejected": "rejected",
}
_SKIPPED: Final = {"PENDING": "running", "FAILED": "failed", "PARKED": "parked"}


def counter_name(event: str, *, state: str = "", reason: str = "") -> str | None:
    """Under which name an event is counted; None if it is not.

    The keeper tells that a lease was lost while the work goes on; it counts where the work is told, with a reason.
    """
    if event == "skipped":
        return _SKIPPED.get(state, "replayed")
    if event == "lost":
        return "unknown" if reason else None
    return _NAMES.get(event)


def operation_of(scope: str) -> str:
    """The scope without its tenant: what is compared and labelled must not grow with the number of tenants."""
    return scope.partition("@")[0]


class CounterRow(Struct, frozen=True):
    """All that one process has counted in one hour so far. `number` grows: the higher one replaces the lower."""

    process: bytes
    hour: int
    number: int
    counts: Counts


class StoredCounts(Struct, frozen=True):
    """The sheets that a store has, and its time."""

    sheets: list[CounterRow]
    now: int


def oldest_kept_hour(now: int) -> int:
    """The first hour whose sheets are kept."""
    return (now - COUNTS_RETENTION) // HOUR


def encode_counts(counts: Counts) -> bytes:
    return msgspec.json.encode(counts)


def decode_counts(data: bytes | str) -> Counts:
    try:
        return _read(data)
    except msgspec.DecodeError as error:
        raise StoreBroken(
            f"a counter holds what no Onceward writes ({error})", hint="was it edited by hand? delete that row"
        ) from error


class CounterTotals(Struct, frozen=True):
    """What all processes counted, by hour, scope and name. `now` is the store's time, `since` the first whole hour."""

    now: int
    since: int
    hours: dict[int, Counts]

    @property
    def scopes(self) -> list[str]:
        return sorted({scope for counts in self.hours.values() for scope in counts})

    @property
    def latest(self) -> int:
        """The hour that has not ended yet."""
        return self.now // HOUR

    def series(self, names: Iterable[str], scope: str | None = None) -> list[int]:
        """How much of these each hour had, the oldest first; in one scope, or in all."""
        wanted = tuple(names)
        return [self.at(hour, wanted, scope) for hour in range(self.since, self.latest + 1)]

    def at(self, hour: int, names: Iterable[str], scope: str | None = None) -> int:
        counts = self.hours.get(hour, {})
        cells = counts.values() if scope is None else [counts.get(scope, {})]
        wanted = tuple(names)
        return sum(cell.get(name, 0) for cell in cells for name in wanted)

    def total(self, name: str, scope: str | None = None, *, hours: int | None = None) -> int:
        """In all hours, or in the last so many, the one that has not ended included."""
        first = 0 if hours is None else self.latest - hours + 1
        return sum(self.at(hour, (name,), scope) for hour in self.hours if hour >= first)

    def begun(self, scope: str) -> int | None:
        """The first hour in which anything was counted in this scope."""
        return min((hour for hour, counts in self.hours.items() if scope in counts), default=None)

    def by_operation(self) -> CounterTotals:
        """The same, the tenants of an operation together."""
        hours: dict[int, Counts] = {}
        for hour, counts in self.hours.items():
            for scope, cell in counts.items():
                _add(hours.setdefault(hour, {}).setdefault(operation_of(scope), {}), cell)
        return CounterTotals(self.now, self.since, hours)


def add_up(counted: StoredCounts, since: int) -> CounterTotals:
    """The sheets of all processes, added up. A clock that was wrong may have left some that are yet to come."""
    hours: dict[int, Counts] = {}
    for sheet in counted.sheets:
        if sheet.hour > counted.now // HOUR + 1:
            continue
        for scope, cell in sheet.counts.items():
            _add(hours.setdefault(sheet.hour, {}).setdefault(scope, {}), cell)
    return CounterTotals(counted.now, since, hours)


def _add(to: dict[str, int], cell: Mapping[str, int]) -> None:
    for name, number in cell.items():
        to[name] = to.get(name, 0) + number


def replay_rate(replayed: int, executed: int) -> float | None:
    """The share of calls that were answered by a stored result; None if there were none."""
    calls = replayed + executed
    return replayed / calls if calls else None


_read = msgspec.json.Decoder(Counts).decode  # now: two first readers at once would crash the process
