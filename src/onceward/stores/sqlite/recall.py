"""What this store saw or wrote last, so that it need not be read again."""

from __future__ import annotations

from onceward.model.record import Record, State

MOST = 1024
"""Claims under way whose records are kept at hand."""


class Recall:
    """Never trusted: the statement that builds on it compares, and writes nothing if it is not so any more.

    Used with the connection in hand, but for `missed`, which is one step.
    """

    __slots__ = ("_granted", "_missing")

    def __init__(self) -> None:
        self._missing = b""
        self._granted: dict[bytes, Record] = {}

    def missed(self, id: bytes) -> None:
        """A look found no record of this key that is done; most often it has none at all."""
        self._missing = id

    def is_missing(self, id: bytes) -> bool:
        """Whether that was the last look. Told once."""
        if self._missing is not id:
            return False
        self._missing = b""
        return True

    def keep(self, record: Record | None) -> None:
        """Its owner will come back to it."""
        if record is not None and record.state is State.PENDING:
            if len(self._granted) >= MOST:
                del self._granted[next(iter(self._granted))]
            self._granted[record.id] = record

    def take(self, id: bytes) -> Record | None:
        return self._granted.pop(id, None)
