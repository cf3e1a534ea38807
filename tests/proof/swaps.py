"""The table itself with one cell exchanged for each other cell of its column: is every single one noticed?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from onceward.protocol.record import RecordState
from onceward.protocol.transitions import TABLE, Cell, Cells, Row

STATES = {
    Row.FREE: RecordState.FREE,
    Row.DONE_OVER: RecordState.COMPLETED,
    Row.DONE: RecordState.COMPLETED,
    Row.REFUSED_OVER: RecordState.FAILED,
    Row.FAILED_OVER: RecordState.FAILED,
    Row.FAILED: RecordState.FAILED,
    Row.REFUSED: RecordState.FAILED,
    Row.LIVE: RecordState.PENDING,
    Row.LAPSED: RecordState.PENDING,
    Row.HANDED_BACK: RecordState.PENDING,
    Row.PARKED: RecordState.PARKED,
}


EQUIVALENT = frozenset(
    f"{row} / release: same_if_released"
    for row in (Row.DONE, Row.DONE_OVER, Row.REFUSED, Row.REFUSED_OVER, Row.PARKED, Row.HANDED_BACK)
)
"""No difference: the owner of what was handed back is always released, and in the other rows never."""


class Swap(NamedTuple):
    row: Row
    verb: str
    cell: Cell

    def __str__(self) -> str:
        return f"{self.row} / {self.verb}: {self.cell.__name__}"


def swaps() -> Iterator[Swap]:
    for verb in Cells._fields:
        column = dict.fromkeys(getattr(cells, verb) for cells in TABLE.values())
        for row, cells in TABLE.items():
            yield from (Swap(row, verb, cell) for cell in column if cell is not getattr(cells, verb))


@contextmanager
def swapped(swap: Swap) -> Iterator[None]:
    shipped = TABLE[swap.row]
    TABLE[swap.row] = shipped._replace(**{swap.verb: swap.cell})
    try:
        yield
    finally:
        TABLE[swap.row] = shipped
