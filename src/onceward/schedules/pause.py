"""Pause a schedule: no runner starts its slots until it is resumed.

The pause is an ordinary COMPLETED record with an unlimited window, so a store needs to know nothing about it. Slots
that pass while a schedule is paused are late when it is resumed: `catch_up` decides whether they run.
"""

from __future__ import annotations

from onceward.protocol.audit import AuditSignature
from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import ClaimRequest, Complete, ExpectedRecord, Verdict

from .definition import Schedule

LEASE = 10_000_000  # µs: long enough for two calls
TIMEOUT = 5.0


def is_paused(record: Record | None) -> bool:
    """Return whether the record of the pause says that the schedule is paused."""
    return record is not None and record.state is RecordState.COMPLETED


async def pause(store: Store, schedule: Schedule, nonce: bytes, signed: AuditSignature) -> bool:
    """Pause the schedule. Return False if it is already paused, or another operator is pausing it."""
    key = schedule.pause
    request = ClaimRequest(key.id, key.scope.text, key.text, nonce, LEASE, owner=signed.who)
    [granted] = await store.claim([request], timeout=TIMEOUT)
    if granted.verdict is not Verdict.ACQUIRED or granted.record is None:
        return False
    completion = Complete(key.id, granted.record.token, nonce, stored=False)
    [settled] = await store.settle([completion], timeout=TIMEOUT, signed=signed)
    return settled.verdict is Verdict.OK


async def resume(store: Store, schedule: Schedule, signed: AuditSignature) -> bool:
    """Resume the schedule. Return False if it is not paused."""
    id = schedule.pause.id
    [answer] = await store.read([id], timeout=TIMEOUT)
    record = answer.record
    if record is None or not is_paused(record):
        return False
    seen = {id: ExpectedRecord(record.token, record.state)}
    [freed] = await store.forget([id], force=False, timeout=TIMEOUT, seen=seen, signed=signed)
    return freed.verdict is Verdict.OK
