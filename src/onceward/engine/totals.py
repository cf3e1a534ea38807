"""Count events by scope: one number in a dict per event, without a lock, a clock or a store.

The counts stay in this process until `runtime.counters` writes them to the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from onceward.protocol.counters import CounterRow, Counts, counter_name, operation_of
from onceward.protocol.record import RecordState

from .events import LEVELS, NUMBERS

if TYPE_CHECKING:
    from onceward.keys.key import Key
    from onceward.protocol.record import CompletedRecord, Record

    from .events import Bus, Emit

MAX_SCOPES: Final = 1_000
"""How many scopes one process counts separately. Further tenants are counted by operation, up to the same number of
operations."""

OTHERS: Final = "(others)"
"""Used if there are too many operations as well, which happens if names are built from data."""

_SKIPS: Final = {
    state: f"skipped {state.value}" for state in (RecordState.PENDING, RecordState.FAILED, RecordState.PARKED)
}
_CELLS: Final = (*LEVELS, *_SKIPS.values())
_NAMES: Final = {
    cell: name
    for cell in _CELLS
    if (name := counter_name(cell.partition(" ")[0], state=cell.partition(" ")[2], reason="any")) is not None
}
_COMPLETED: Final = RecordState.COMPLETED


class Labels:
    """Metric labels: operations without their tenants, limited in number."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, scope: str) -> str:
        operation = operation_of(scope)
        if operation not in self._known:
            if len(self._known) >= MAX_SCOPES:
                return OTHERS
            self._known.add(operation)
        return operation


class Totals:
    """How often each event happened in each scope since this process started. The numbers only grow.

    An addition needs no lock: the interpreter does not switch threads within it.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self.cells: dict[str, dict[str, int]] = {}
        self._begin = begin  # called for each new scope: then there are counts to write

    def add(self, scope: str, cell: str, times: int = 1) -> None:
        try:
            self.cells[scope][cell] += times
        except KeyError:
            self._cells_of(scope)[cell] += times

    def _cells_of(self, scope: str) -> dict[str, int]:
        if len(self.cells) >= MAX_SCOPES and scope not in self.cells:
            scope = operation_of(scope)
            if len(self.cells) >= 2 * MAX_SCOPES and scope not in self.cells:
                scope = OTHERS
        cells = self.cells.setdefault(scope, dict.fromkeys(_CELLS, 0))
        self._begin()
        return cells

    def counts(self) -> Counts:
        """Return the counts so far, under their public names. Other threads may count meanwhile."""
        found: Counts = {}
        for scope, cells in self.cells.copy().items():
            cell: dict[str, int] = {}
            for event, number in cells.copy().items():
                if number and event in _NAMES:
                    name = _NAMES[event]
                    cell[name] = cell.get(name, 0) + number
            if cell:
                found[scope] = cell
        return found

    def emitter(self, bus: Bus, emit: Emit) -> Emit:
        """Return an `emit` that counts each event, and builds it only for listeners. One function, for speed."""
        cells, add, counts, loud, levels = self.cells, self.add, bus.counts, bus.loud, NUMBERS

        def counted(
            name: str, key: Key, record: Record | CompletedRecord | None = None, *, reason: str = "", error: str = ""
        ) -> None:
            cell = name
            if name == "skipped" and record is not None and record.state is not _COMPLETED:
                cell = _SKIPS.get(record.state, name)
            try:
                cells[key.scope.text][cell] += 1
            except KeyError:
                add(key.scope.text, cell)
            counts[name] += 1
            if loud(levels[name]) or bus.listeners:
                emit(name, key, record, reason=reason, error=error)

        return counted

    def clear(self) -> None:
        """Clear the counts in a forked child: the parent writes them."""
        self.cells.clear()


class HourlyCounts:
    """Assigns counts to hours until the store has them all."""

    def __init__(self, process: bytes) -> None:
        self._process = process
        self._entered: Counts = {}
        self._counter_rows: dict[tuple[bytes, int], Counts] = {}
        self._unwritten: set[tuple[bytes, int]] = set()
        self._open = (process, 0)
        self._number = 0

    def lacks(self, totals: Counts) -> bool:
        """Return whether the store lacks any of these counts."""
        return bool(self._unwritten) or totals != self._entered

    def enter(self, totals: Counts, hour: int) -> list[CounterRow]:
        """Assign new counts to this hour; return the rows that the store lacks."""
        self._open_hour(hour)
        for scope, cell in totals.items():
            before = self._entered.setdefault(scope, {})
            for name, number in cell.items():
                more = number - before.get(name, 0)
                if more:
                    booked = self._counter_rows.setdefault(self._open, {}).setdefault(scope, {})
                    booked[name] = booked.get(name, 0) + more
                    before[name] = number
                    self._unwritten.add(self._open)
        self._number += 1
        return [CounterRow(*id, self._number, self._counter_rows[id]) for id in sorted(self._unwritten)]

    def _open_hour(self, hour: int) -> None:
        """Choose the row of the current hour.

        If the clock was set back by an hour or less, keep the open row. If it was set back further, that hour's
        row was already written and dropped here, so open a new row under another name.
        """
        process, latest = self._open
        if hour < latest - 1:
            self._open = (self._process + b"%d" % self._number, hour)
        elif hour > latest:
            self._open = (process, hour)

    def written(self) -> None:
        """Note that the store has everything. Drop the rows of past hours, which no longer change."""
        self._unwritten.clear()
        self._counter_rows = {id: counts for id, counts in self._counter_rows.items() if id == self._open}
