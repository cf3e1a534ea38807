"""Ask the runners of a schedule to run it now, outside its pattern.

The request is an ordinary COMPLETED record that notes the requested instant. A runner sees it at its next check, within
a minute, and claims the slot of that instant like any other: so it runs once, however many runners there are.
"""

from __future__ import annotations

from onceward.errors import NotAcquired
from onceward.protocol.audit import AuditSignature
from onceward.protocol.ports import Store
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import ClaimRequest, Complete, ExpectedRecord, Verdict

from .definition import Schedule

LEASE = 10_000_000  # µs: long enough for two calls
TIMEOUT = 5.0
SLOT = "slot"
SECOND = 1_000_000


def requested_slot(record: Record | None, schedule: Schedule, now: int) -> int | None:
    """Return the requested slot. Old requests do not count: the record of their run may have been purged."""
    if record is None or record.state is not RecordState.COMPLETED or not record.note.get(SLOT, "").isdecimal():
        return None
    slot = int(record.note[SLOT])
    return slot if now - schedule.slots.catch_up_age < slot <= now else None


async def request_run(store: Store, schedule: Schedule, nonce: bytes, signed: AuditSignature) -> int:
    """Request a run now. Return its slot. Raise NotAcquired if another operator requests one at the same time."""
    key = schedule.requested
    [answer] = await store.read([key.id], timeout=TIMEOUT)
    record = answer.record
    if record is not None and record.state is RecordState.COMPLETED:  # an earlier request: replace it
        seen = {key.id: ExpectedRecord(record.token, record.state)}
        await store.forget([key.id], force=False, timeout=TIMEOUT, seen=seen)
    request = ClaimRequest(key.id, key.scope.text, key.text, nonce, LEASE, owner=signed.who)
    [granted] = await store.claim([request], timeout=TIMEOUT)
    if granted.verdict is not Verdict.ACQUIRED or granted.record is None:
        raise NotAcquired("another operator is requesting a run", key=key.text, hint="try again")
    slot = granted.now // SECOND * SECOND
    completion = Complete(key.id, granted.record.token, nonce, stored=False, note={SLOT: str(slot)})
    [settled] = await store.settle([completion], timeout=TIMEOUT, signed=signed)
    if settled.verdict is not Verdict.OK:
        raise NotAcquired("another operator is requesting a run", key=key.text, hint="try again")
    return slot
