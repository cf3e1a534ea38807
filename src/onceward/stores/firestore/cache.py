"""Cache the claims that this process owns, so that settling them needs no read.

A conditional write fails if the cached version is outdated, and then the record is read. So an outdated entry does no
harm. A store and its clones share the cache, because the store claims and the heartbeat's clone renews.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from onceward.protocol.record import NO_OWNER, Record, RecordState

MAX_CLAIMS = 10_000
"""Cached claims; the oldest are removed first. They take a few megabytes."""


DRIFT_DIVISOR = 5_000
"""Two clocks drift apart by less than 1/5000: 200 µs per second."""

MAX_BACKWARD_STEP = 1_000_000
"""µs. A larger step back is a change of the server's clock, not a slow reply."""


class CachedDocument(NamedTuple):
    """A record as it was read or written, with its document's name and version. None: the document does not exist."""

    name: str
    record: Record | None
    version: Any


class FirestoreCache:
    """The last known documents of claims owned by this process, and the server's time."""

    def __init__(self) -> None:
        self._documents: dict[bytes, CachedDocument] = {}
        self._unconfirmed: dict[bytes, bytes] = {}
        self._clock_offset: tuple[int, int] | None = None  # server time minus monotonic time, and when it was measured

    def get_owned(self, id: bytes, token: int, nonce: bytes) -> CachedDocument | None:
        """Return the cached document if it belongs to this claim."""
        cached = self._documents.get(id)
        if cached is None or cached.record is None or (cached.record.token, cached.record.nonce) != (token, nonce):
            return None
        return cached

    def peek(self, id: bytes) -> CachedDocument | None:
        """Return the cached document, regardless of the owner of its claim."""
        return self._documents.get(id)

    def document_name(self, id: bytes) -> str | None:
        cached = self._documents.get(id)
        return None if cached is None else cached.name

    def put(self, cached: CachedDocument) -> None:
        record = cached.record
        if record is None:
            return
        if record.state is not RecordState.PENDING or record.nonce == NO_OWNER or record.released:
            self.drop(record.id)
            return
        self._documents.pop(record.id, None)  # so that it becomes the newest entry
        self._documents[record.id] = cached
        while len(self._documents) > MAX_CLAIMS:
            with suppress(RuntimeError, StopIteration):  # another thread changed it at the same time: try again
                self._documents.pop(next(iter(self._documents)), None)

    def drop(self, id: bytes) -> None:
        self._documents.pop(id, None)

    # ── claims that may have been written although their caller got another answer ──

    def add_unconfirmed(self, id: bytes, nonce: bytes) -> None:
        self._unconfirmed[id] = nonce
        while len(self._unconfirmed) > MAX_CLAIMS:
            with suppress(RuntimeError, StopIteration):  # as above
                self._unconfirmed.pop(next(iter(self._unconfirmed)), None)

    def is_unconfirmed(self, record: Record) -> bool:
        """Return whether the caller of this claim got "running elsewhere" as its answer, and so never started."""
        return record.state is RecordState.PENDING and self._unconfirmed.get(record.id) == record.nonce

    # ── the server's time between two replies ──

    def sync_clock(self, now: int) -> None:
        """Update the clock offset with the time from a reply. The fastest reply gives the most accurate offset.

        Clocks drift, so an older measurement counts for less. After a step of the clock, only the new one counts.
        """
        local_time = time.monotonic_ns() // 1_000
        offset, (before, since) = now - local_time, self._clock_offset or (now - local_time, local_time)
        before -= (local_time - since) // DRIFT_DIVISOR
        self._clock_offset = (offset if before - offset > MAX_BACKWARD_STEP else max(offset, before)), local_time

    def now(self) -> int | None:
        """Return the server's time, behind by the latency of a reply at most; None before the first reply."""
        if self._clock_offset is None:
            return None
        offset, since = self._clock_offset
        local_time = time.monotonic_ns() // 1_000
        return local_time + offset - (local_time - since) // DRIFT_DIVISOR


Now = Callable[[], int | None]
"""Returns the time of a test clock, or None to use the server's."""
