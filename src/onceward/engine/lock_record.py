"""What makes a record a lock: its mark, and how it ends.

A lock is released by `complete` with a window that is over at once. Not by `release`: that verb says "the effect was
not begun", which is untrue of a block that has run, and after a take-over it would leave a FAILED record whose attempts
go on counting. Completed and over, the next claim starts a new cycle at attempt 1, the token grows, a repeated release
gets the same answer, and purge may take the record like any other that answers for nothing.
"""

from __future__ import annotations

from typing import Final

from onceward.keys.fingerprint import fingerprint
from onceward.protocol.record import Record
from onceward.protocol.requests import Complete, Validity

LOCK_FINGERPRINT: Final = fingerprint({"lock()": True})
"""The payload of every lock, which no work can have: a key is either work or a lock, and mixing them is a mismatch."""

EXPIRES_AT_ONCE: Final = Validity(lasting=0)


def is_lock(record: Record) -> bool:
    return record.fingerprint == LOCK_FINGERPRINT


def lock_release(record: Record) -> Complete:
    """The settlement that frees a lock for everybody, by its owner."""
    return Complete(record.id, record.token, record.nonce, stored=False, validity=EXPIRES_AT_ONCE)
