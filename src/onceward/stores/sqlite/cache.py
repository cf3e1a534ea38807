"""The records that this store read or wrote last, so that it need not read them again."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.protocol.record import Record
from onceward.protocol.requests import AnyRequest, ClaimRequest

MAX_KEYS = 1024
"""The maximum number of missing keys, and of granted records, in the cache."""


class StaleCache(Exception):
    """A cached record is no longer the stored one. Nothing was written."""


class RecordCache:
    """Never trusted: a statement based on it compares, and writes nothing if the stored record has changed.

    Used with the connection's lock held, except for `add_missing`, which is one step.
    """

    __slots__ = ("_granted", "_missing")

    def __init__(self) -> None:
        self._missing: dict[bytes, None] = {}
        self._granted: dict[bytes, Record] = {}

    def add_missing(self, id: bytes) -> None:
        """Note that a lookup found no record of this key."""
        if len(self._missing) >= MAX_KEYS:  # lookups that no claim followed
            self._missing.clear()
        self._missing[id] = None

    def add(self, record: Record) -> None:
        """Cache a PENDING record: its owner will renew or settle it."""
        if len(self._granted) >= MAX_KEYS:
            del self._granted[next(iter(self._granted))]
        self._granted[record.id] = record

    def take(self, requests: Sequence[AnyRequest]) -> dict[bytes, Record | None]:
        """Remove and return the cached records of these requests. None: the key has no record."""
        taken: dict[bytes, Record | None] = {}
        for request in requests:
            id = request.id
            if type(request) is not ClaimRequest:
                record = self._granted.pop(id, None)
                if record is not None:
                    taken[id] = record
            elif self._missing.pop(id, _NOT_CACHED) is not _NOT_CACHED:
                taken[id] = None
        return taken


_NOT_CACHED = object()
