"""Requests of operators to the runners of a schedule: pause it, resume it, or run it now, outside its pattern.

Each request is an ordinary COMPLETED record, so stores need no special support. A runner sees the request at its next
check, within a minute. Slots that pass while a schedule is paused are late when it is resumed: `catch_up` decides
whether they run. A request to run now stores its instant in the note. Runners claim the slot of that instant like any
other slot. So it runs once, however many runners there are.
"""

from __future__ import annotations

from onceward.errors import NotAcquired
from onceward.keys.key import Key
from onceward.protocol.audit import AuditSignature
from onceward.protocol.policy import SECOND
from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import ClaimRequest, Complete, ExpectedRecord, Verdict

from .definition import Schedule

LEASE = 10_000_000  # µs: long enough for two calls
TIMEOUT = 5.0
SLOT = "slot"


def is_paused(record: Record | None) -> bool:
    """Return whether the schedule is paused, given the record of its pause."""
    return record is not None and record.state is RecordState.COMPLETED


def requested_slot(record: Record | None, schedule: Schedule, now: int) -> int | None:
    """Return the requested slot; None if there is none.

    Old requests are ignored: the record of their run may have been purged, so the slot would run again.
    """
    if record is None or record.state is not RecordState.COMPLETED or not record.note.get(SLOT, "").isdecimal():
        return None
    slot = int(record.note[SLOT])
    return slot if now - schedule.slots.catch_up_age < slot <= now else None


async def pause(store: Store, schedule: Schedule, nonce: bytes, signed: AuditSignature) -> bool:
    """Pause the schedule. Return False if it is already paused, or another operator is pausing it."""
    return await _write(store, schedule.pause, nonce, signed, {})


async def resume(store: Store, schedule: Schedule, signed: AuditSignature) -> bool:
    """Resume the schedule. Return False if it is not paused."""
    [answer] = await store.read([schedule.pause.id], timeout=TIMEOUT)
    return await _forget(store, answer.record, signed)


async def request_run(store: Store, schedule: Schedule, nonce: bytes, signed: AuditSignature) -> int:
    """Request a run now. Return its slot. Raise NotAcquired if another operator requests one at the same time."""
    key = schedule.requested
    [answer] = await store.read([key.id], timeout=TIMEOUT)
    await _forget(store, answer.record)  # an earlier request
    slot = answer.now // SECOND * SECOND
    if not await _write(store, key, nonce, signed, {SLOT: str(slot)}):
        raise NotAcquired("another operator is requesting a run", key=key.text, hint="try again")
    return slot


async def _write(store: Store, key: Key, nonce: bytes, signed: AuditSignature, note: dict[str, str]) -> bool:
    request = ClaimRequest(key.id, key.scope.text, key.text, nonce, LEASE, owner=signed.who)
    [granted] = await store.claim([request], timeout=TIMEOUT)
    if granted.verdict is not Verdict.ACQUIRED or granted.record is None:
        return False
    completion = Complete(key.id, granted.record.token, nonce, stored=False, note=note)
    [settled] = await store.settle([completion], timeout=TIMEOUT, signed=signed)
    return settled.verdict is Verdict.OK


async def _forget(store: Store, record: Record | None, signed: AuditSignature | None = None) -> bool:
    """Forget the record, if it is COMPLETED and has not changed since it was read."""
    if record is None or record.state is not RecordState.COMPLETED:
        return False
    seen = {record.id: ExpectedRecord(record.token, record.state)}
    [freed] = await store.forget([record.id], force=False, timeout=TIMEOUT, seen=seen, signed=signed)
    return freed.verdict is Verdict.OK
