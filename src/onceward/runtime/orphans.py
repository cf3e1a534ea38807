"""Claims whose answer never came: nobody knows whether they were granted, and nobody will do their work.

They are looked for by their nonce, and given back, so that no key is held for a whole lease by a claim that was given
up. A claim may still be on its way when a look finds nothing: the store was frozen, or the network was. So the looks go
on for a while after the store has answered again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Release, Verdict

from .bridge import run

FIRST, LONGEST = 0.05, 5.0  # seconds between two looks
GRACE = 30.0  # seconds for which a store that answers is asked
LOOK = 0.5  # seconds that one call may take: the renewals of others wait behind it
BATCH, MOST = 256, 4096


class OrphanedClaim:
    """One claim that may have been granted."""

    __slots__ = ("id", "nonce", "pause", "try_at", "until")

    def __init__(self, id: bytes, nonce: bytes, now: float, until: float) -> None:
        self.id = id
        self.nonce = nonce
        self.pause = FIRST
        self.try_at = now + FIRST
        self.until = until


class OrphanReconciler:
    """Asks by way of the keeper's thread and connection: a batch at a time, because the renewals of others wait."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._sought: dict[bytes, OrphanedClaim] = {}

    def add(self, id: bytes, nonce: bytes, seconds: float) -> None:
        """For as long as the lease would last."""
        now = self._monotonic()
        self._sought[nonce] = OrphanedClaim(id, nonce, now, now + seconds)
        while len(self._sought) > MOST:  # a store that is down for long makes many: the oldest lapse by themselves
            self._sought.pop(next(iter(tuple(self._sought))), None)

    def next_look(self) -> float:
        return min((one.try_at for one in tuple(self._sought.values())), default=math.inf)

    def look(self, connected: Callable[[], Store]) -> list[Record]:
        """One round over some that are due; the records that were given back."""
        now = self._monotonic()
        due = [one for one in tuple(self._sought.values()) if one.try_at <= now][:BATCH]
        given_back: list[Record] = []
        if due:
            with suppress(Exception):  # whatever it is, it is tried again, and lapses in the end
                given_back = self._given_back(connected(), due)
        now = self._monotonic()
        for one in due:
            one.pause = min(one.pause * 2, LONGEST)
            one.try_at = now + one.pause
            if now >= one.until:
                self._sought.pop(one.nonce, None)
        return given_back

    def _given_back(self, store: Store, due: list[OrphanedClaim]) -> list[Record]:
        answers = run(store.read([one.id for one in due], timeout=LOOK))
        ours = []
        for one, answer in zip(due, answers, strict=True):
            record = answer.record
            one.until = min(one.until, self._monotonic() + GRACE)
            if record is not None and record.nonce == one.nonce:  # else it is not there yet, or never was
                if record.state is RecordState.PENDING and not record.released:
                    ours.append(record)
                else:
                    one.until = 0.0
        if not ours:
            return []
        releases = [Release(record.id, record.token, record.nonce) for record in ours]
        settled = run(store.settle(releases, timeout=LOOK))
        for record in ours:
            self._sought.pop(record.nonce, None)
        return [record for record, answer in zip(ours, settled, strict=True) if answer.verdict is Verdict.OK]
