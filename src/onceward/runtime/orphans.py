"""Release orphaned claims: their answer never came, so they may have been granted, but their caller has gone.

The reconciler reads their records, recognises them by their nonce and releases them, so that they do not hold a key for
a whole lease. A claim may arrive after a check found nothing, if the store or the network was stalled. So the checks
continue for a while after the store has answered again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Release, Verdict

from .threads import run

FIRST_PAUSE, MAX_PAUSE = 0.05, 5.0  # seconds between two checks
GRACE = 30.0  # seconds for which the checks continue once the store answers
CALL_TIMEOUT = 0.5  # seconds for one call: lease renewals wait for it
BATCH, MAX_ORPHANS = 256, 4096


class OrphanedClaim:
    """A claim that may have been granted."""

    __slots__ = ("id", "nonce", "pause", "try_at", "until")

    def __init__(self, id: bytes, nonce: bytes, now: float, until: float) -> None:
        self.id = id
        self.nonce = nonce
        self.pause = FIRST_PAUSE
        self.try_at = now + FIRST_PAUSE
        self.until = until


class OrphanReconciler:
    """Runs in the heartbeat's thread, on its connection: one batch at a time, because lease renewals wait for it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._orphans: dict[bytes, OrphanedClaim] = {}

    def add(self, id: bytes, nonce: bytes, seconds: float) -> None:
        """Add a claim. It is checked for as long as its lease would last."""
        now = self._monotonic()
        self._orphans[nonce] = OrphanedClaim(id, nonce, now, now + seconds)
        while (
            len(self._orphans) > MAX_ORPHANS
        ):  # a long outage makes many: the leases of the oldest expire by themselves
            self._orphans.pop(next(iter(tuple(self._orphans))), None)

    def next_check(self) -> float:
        return min((one.try_at for one in tuple(self._orphans.values())), default=math.inf)

    def release_due(self, connect: Callable[[], Store]) -> list[Record]:
        """Check one batch of those that are due; return the records that were released."""
        now = self._monotonic()
        due = [one for one in tuple(self._orphans.values()) if one.try_at <= now][:BATCH]
        released: list[Record] = []
        if due:
            with suppress(Exception):  # it is tried again; in the end the lease expires
                released = self._release(connect(), due)
        now = self._monotonic()
        for one in due:
            one.pause = min(one.pause * 2, MAX_PAUSE)
            one.try_at = now + one.pause
            if now >= one.until:
                self._orphans.pop(one.nonce, None)
        return released

    def release_all(self, connect: Callable[[], Store]) -> list[Record]:
        """Check all of them for the last time; return the records that were released. It ends at the first failure."""
        left = list(self._orphans.values())
        released: list[Record] = []
        with suppress(Exception):  # their leases expire
            for start in range(0, len(left), BATCH):
                released += self._release(connect(), left[start : start + BATCH])
        return released

    def _release(self, store: Store, due: list[OrphanedClaim]) -> list[Record]:
        answers = run(store.read([one.id for one in due], timeout=CALL_TIMEOUT))
        ours = []
        for one, answer in zip(due, answers, strict=True):
            record = answer.record
            one.until = min(one.until, self._monotonic() + GRACE)
            if record is not None and record.nonce == one.nonce:  # otherwise it has not arrived, or never will
                if record.state is RecordState.PENDING and not record.released:
                    ours.append(record)
                else:
                    one.until = 0.0
        if not ours:
            return []
        releases = [Release(record.id, record.token, record.nonce) for record in ours]
        settled = run(store.settle(releases, timeout=CALL_TIMEOUT))
        for record in ours:
            self._orphans.pop(record.nonce, None)
        return [record for record, answer in zip(ours, settled, strict=True) if answer.verdict is Verdict.OK]
