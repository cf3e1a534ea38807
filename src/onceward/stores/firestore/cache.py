"""What this process has just written and still owns: its settlement then needs no read.

A conditional write says whether it still holds. So what is remembered may be old, and never does harm: then the record
is read after all. A store and its twins remember together, because one claims and the keeper's renews.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from onceward.protocol.record import NO_OWNER, Record, RecordState

MOST = 10_000
"""Claims that are remembered, the oldest go first. A few megabytes."""


APART = 5_000
"""Two clocks differ by less than a part in so many: 200 µs a second."""

LEAP = 1_000_000
"""µs: more than that is no delay of an answer."""


class CachedDocument(NamedTuple):
    """A record as it was seen or written: in which document, in which version. None: there is no such document."""

    name: str
    record: Record | None
    version: Any


class FirestoreCache:
    """The last sights of claims that are held here, and the server's time."""

    def __init__(self) -> None:
        self._sights: dict[bytes, CachedDocument] = {}
        self._unheard: dict[bytes, bytes] = {}
        self._ahead: tuple[int, int] | None = None  # of the server's clock against the monotonic one, and since when

    def of(self, id: bytes, token: int, nonce: bytes) -> CachedDocument | None:
        """What its owner may go by."""
        sight = self._sights.get(id)
        if sight is None or sight.record is None or (sight.record.token, sight.record.nonce) != (token, nonce):
            return None
        return sight

    def name(self, id: bytes) -> str | None:
        sight = self._sights.get(id)
        return None if sight is None else sight.name

    def wrote(self, sight: CachedDocument) -> None:
        record = sight.record
        if record is None:
            return
        if record.state is not RecordState.PENDING or record.nonce == NO_OWNER or record.released:
            self.drop(record.id)
            return
        self._sights.pop(record.id, None)  # so that it is the youngest
        self._sights[record.id] = sight
        while len(self._sights) > MOST:
            with suppress(RuntimeError, StopIteration):  # another thread has just changed it: look again
                self._sights.pop(next(iter(self._sights)), None)

    def drop(self, id: bytes) -> None:
        self._sights.pop(id, None)

    # ── claims that were perhaps written, and of which nobody was told ──

    def unheard(self, id: bytes, nonce: bytes) -> None:
        self._unheard[id] = nonce
        while len(self._unheard) > MOST:
            with suppress(RuntimeError, StopIteration):  # as above
                self._unheard.pop(next(iter(self._unheard)), None)

    def is_unheard(self, record: Record) -> bool:
        """Whether this claim is one whose caller was told that somebody else is at it: then nothing was begun."""
        return record.state is RecordState.PENDING and self._unheard.get(record.id) == record.nonce

    # ── the server's time between two answers ──

    def heard(self, now: int) -> None:
        """It said so in an answer. The one that was on its way for the shortest time is the nearest to the truth.

        Clocks do not run alike, so that what was heard long ago counts for less; and after a leap only the new counts.
        """
        here = time.monotonic_ns() // 1_000
        ahead, (before, since) = now - here, self._ahead or (now - here, here)
        before -= (here - since) // APART
        self._ahead = (ahead if before - ahead > LEAP else max(ahead, before)), here

    def now(self) -> int | None:
        """The server's time, late by as long as an answer travels; None before the first."""
        if self._ahead is None:
            return None
        ahead, since = self._ahead
        here = time.monotonic_ns() // 1_000
        return here + ahead - (here - since) // APART


Now = Callable[[], int | None]
"""The time of a clock that replaces the server's, for tests."""
