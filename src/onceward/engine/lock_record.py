"""What makes a record a lock: its fingerprint, and how it is released.

A lock is released by `complete` with a window that expires immediately, not by `release`. `release` means "the effect
was not begun", which is wrong for a block that has run. After a takeover it would also leave a FAILED record whose
attempts keep counting. With `complete`, the next claim starts a new cycle at attempt 1 and the token grows. A repeated
release gets the same answer, and purge may delete the record like any other expired one.
"""

from __future__ import annotations

from typing import Final

from onceward.keys.fingerprint import fingerprint
from onceward.protocol.record import Record
from onceward.protocol.requests import Complete, Validity

LOCK_FINGERPRINT: Final = fingerprint({"lock()": True})
"""The fingerprint of every lock, which no work can have: using one key for both is a mismatch."""

EXPIRES_AT_ONCE: Final = Validity(lasting=0)


def is_lock(record: Record) -> bool:
    return record.fingerprint == LOCK_FINGERPRINT


def lock_release(record: Record) -> Complete:
    """Return the settlement by which the owner releases a lock."""
    return Complete(record.id, record.token, record.nonce, stored=False, validity=EXPIRES_AT_ONCE)
