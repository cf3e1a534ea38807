"""What this store saw or wrote last, so that it need not be read again."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import AnyRequest, ClaimRequest

MOST = 1024
"""Keys of each sort that are kept at hand."""


class StaleCache(Exception):
    """What was recalled is not so any more. Nothing was written."""


class RecordCache:
    """Never trusted: the statement that builds on it compares, and writes nothing if it is not so any more.

    Used with the connection in hand, but for `missed`, which is one step.
    """

    __slots__ = ("_granted", "_missing")

    def __init__(self) -> None:
        self._missing: dict[bytes, None] = {}
        self._granted: dict[bytes, Record] = {}

    def missed(self, id: bytes) -> None:
        """A look found no record of this key."""
        if len(self._missing) >= MOST:  # looks that no claim came after
            self._missing.clear()
        self._missing[id] = None

    def keep(self, record: Record | None) -> None:
        """Its owner will come back to it."""
        if record is not None and record.state is RecordState.PENDING:
            if len(self._granted) >= MOST:
                del self._granted[next(iter(self._granted))]
            self._granted[record.id] = record

    def before(self, requests: Sequence[AnyRequest]) -> dict[bytes, Record | None]:
        """As far as recalled, each record as it was before its request; None: there is none. Told once."""
        told: dict[bytes, Record | None] = {}
        for request in requests:
            id = request.id
            if type(request) is not ClaimRequest:
                record = self._granted.pop(id, None)
                if record is not None:
                    told[id] = record
            elif self._missing.pop(id, ABSENT) is not ABSENT:
                told[id] = None
        return told


ABSENT = object()
