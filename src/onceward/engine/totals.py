"""Counting on the way of every call: one number in a dict, without a lock, a clock or a store.

What is counted here stays in this process until `runtime.counters` writes it down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from onceward.protocol.counters import Counts, CounterRow, counter_name, operation_of
from onceward.protocol.record import RecordState

from .events import LEVELS, NUMBERS

if TYPE_CHECKING:
    from onceward.keys.key import Key
    from onceward.protocol.record import CompletedRecord, Record

    from .events import Bus, Emit

MAX_SCOPES: Final = 1_000
"""Scopes that one process tells apart: each costs a line of every sheet. Of further tenants, only the operation, and at
most so many of these."""

OTHERS: Final = "(others)"
"""Where even the operations are too many, which happens to names that are made of data."""

_SKIPS: Final = {
    state: f"skipped {state.value}" for state in (RecordState.PENDING, RecordState.FAILED, RecordState.PARKED)
}
_CELLS: Final = (*LEVELS, *_SKIPS.values())
_NAMES: Final = {
    cell: name
    for cell in _CELLS
    if (name := counter_name(cell.partition(" ")[0], state=cell.partition(" ")[2], reason="told")) is not None
}
_COMPLETED: Final = RecordState.COMPLETED


class Labels:
    """What metrics are labelled with: operations without their tenants, and not any number of them."""

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
    """How often each event happened in each scope since this process began: numbers that only grow.

    An addition is a few steps of the interpreter between which no other thread gets its turn.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self.cells: dict[str, dict[str, int]] = {}
        self._begin = begin  # told when a scope is new: then there is something to write down

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
        """What was counted so far, under the names that people see. Taken while others go on counting."""
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
        """Counts each event, and makes it only if anybody listens. All in one call, since every event comes by."""
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
        """In the child of a fork: what was counted before is its parent's to tell."""
        self.cells.clear()


class HourlyCounts:
    """Which counts belong to which hour, until the store has them all."""

    def __init__(self, process: bytes) -> None:
        self._process = process
        self._entered: Counts = {}
        self._sheets: dict[tuple[bytes, int], Counts] = {}
        self._unwritten: set[tuple[bytes, int]] = set()
        self._open = (process, 0)
        self._number = 0

    def lacks(self, totals: Counts) -> bool:
        """Whether anything is to be written."""
        return bool(self._unwritten) or totals != self._entered

    def enter(self, totals: Counts, hour: int) -> list[CounterRow]:
        """Book what is new in this hour; the sheets that the store lacks."""
        self._turn_to(hour)
        for scope, cell in totals.items():
            before = self._entered.setdefault(scope, {})
            for name, number in cell.items():
                more = number - before.get(name, 0)
                if more:
                    booked = self._sheets.setdefault(self._open, {}).setdefault(scope, {})
                    booked[name] = booked.get(name, 0) + more
                    before[name] = number
                    self._unwritten.add(self._open)
        self._number += 1
        return [CounterRow(*place, self._number, self._sheets[place]) for place in sorted(self._unwritten)]

    def _turn_to(self, hour: int) -> None:
        """A clock that is set back a little books in the hour that is open: nobody looks for it further ahead.

        An earlier sheet was written, and is not known here any more; so it is a new one, under another name.
        """
        process, latest = self._open
        if hour < latest - 1:
            self._open = (self._process + b"%d" % self._number, hour)
        elif hour > latest:
            self._open = (process, hour)

    def written(self) -> None:
        """The store has all that was entered. Hours that are over will not change any more."""
        self._unwritten.clear()
        self._sheets = {place: counts for place, counts in self._sheets.items() if place == self._open}
