"""Tables with one cell exchanged for another cell of its column. The proof must notice each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from onceward.protocol.record import RecordState
from onceward.protocol.transitions import TABLE, Cell, Cells, Row

STATES = {
    Row.FREE: RecordState.FREE,
    Row.COMPLETED_EXPIRED: RecordState.COMPLETED,
    Row.COMPLETED: RecordState.COMPLETED,
    Row.FAILED_FINAL_EXPIRED: RecordState.FAILED,
    Row.FAILED_RETRYABLE_EXPIRED: RecordState.FAILED,
    Row.FAILED_RETRYABLE: RecordState.FAILED,
    Row.FAILED_FINAL: RecordState.FAILED,
    Row.PENDING_LIVE: RecordState.PENDING,
    Row.PENDING_LAPSED: RecordState.PENDING,
    Row.RELEASED_UNVERIFIED: RecordState.PENDING,
    Row.PARKED: RecordState.PARKED,
}


EQUIVALENT = frozenset(
    f"{row} / release: ok_if_released"
    for row in (
        Row.COMPLETED,
        Row.COMPLETED_EXPIRED,
        Row.FAILED_FINAL,
        Row.FAILED_FINAL_EXPIRED,
        Row.PARKED,
        Row.RELEASED_UNVERIFIED,
    )
)
"""No difference: a record in RELEASED_UNVERIFIED is always released, and a record in the other rows never is."""


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
