"""What a reader hands out: rows that can be read, and rows that cannot, each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct

MOST_CELLS_KEPT = 1_000
MOST_TEXT_KEPT = 10_000
"""Of a row that is too long, in the reject file: enough to recognise it. The source has it all."""


class Row(Struct, frozen=True, gc=False):
    """A row that can be read. An empty cell is no value: it is left out."""

    line: int
    values: Mapping[str, str]


class Bad(Struct, frozen=True, gc=False):
    """A row that cannot be read, as far as it could be, and why."""

    line: int
    reason: str
    cells: tuple[str, ...]


Read: TypeAlias = Row | Bad


class Reader(Protocol):
    """A file of rows, read once from its begin to its end, in constant memory."""

    columns: tuple[str, ...]
    """The file's own; empty if every row has its own names."""

    def __iter__(self) -> Iterator[Read]: ...

    def position(self) -> int:
        """How many bytes of the file were read so far."""
        ...

    def digest(self) -> str:
        """The hash of what was read; called at the end."""
        ...

    def close(self) -> None: ...


def cut(text: str) -> str:
    """What the reject file keeps of one long text."""
    return text if len(text) <= MOST_TEXT_KEPT else f"{text[:MOST_TEXT_KEPT]}…"
