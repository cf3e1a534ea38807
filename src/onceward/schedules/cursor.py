"""The cursor of a schedule: up to which slot everything is settled or given up. It only ever moves forward.

It is kept in two ordinary records, both COMPLETED for ever, so that no purge takes them, and only the larger one
counts. To move it, the smaller one is made free (if it still is what was seen), claimed and completed with the new
value. Whoever dies on the way leaves the larger one as it was; of several who move it at once one wins. The verbs are
those of any record: a store needs to know nothing about schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from msgspec import Struct

from onceward.engine.acquire import FIRST_PAUSE, TRIES_LEFT
from onceward.engine.engine import Engine
from onceward.errors import StoreError
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, ClaimRequest, Complete, ExpectedRecord, Verdict

from .definition import Schedule

LEASE = 10_000_000  # µs: long enough for two calls, short enough for others to go on if their caller dies
TIMEOUT = 2.0
VALUE, MISSED = "considered", "missed"


class Cursor(Struct, frozen=True):
    """Where a schedule has come to, and what the two records were that said so."""

    considered: int
    missed: int
    spare: Record | None
    spare_at: int  # which of the two holds the smaller value, or none


def cursor_of(answers: Sequence[Answer]) -> Cursor | None:
    """The cursor that two records say; None if the schedule is new."""
    values = [_value(answer.record) for answer in answers]
    newest = max((0, 1), key=lambda number: values[number] or (-1, 0))
    value = values[newest]
    if value is None:
        return None
    spare = 1 - newest
    return Cursor(*value, answers[spare].record, spare)


def _value(record: Record | None) -> tuple[int, int] | None:
    if record is None or record.state is not RecordState.COMPLETED or VALUE not in record.note:
        return None
    return int(record.note[VALUE]), int(record.note.get(MISSED, "0"))


async def move(engine: Engine, schedule: Schedule, seen: Cursor | None, considered: int, missed: int) -> bool:
    """Move it from what was seen to here; `missed` in all. False: somebody else is moving it, or has."""
    number = 0 if seen is None else seen.spare_at
    key = schedule.cursors[number]
    spare = None if seen is None else seen.spare
    if spare is not None and spare.state not in (RecordState.FREE, RecordState.PENDING):
        marks = {key.id: ExpectedRecord(spare.token, spare.state)}
        freed = await engine.store.forget([key.id], force=False, timeout=TIMEOUT, seen=marks)
        if freed[0].verdict is not Verdict.OK:
            return False
    nonce = engine.runtime.nonce()
    request = ClaimRequest(key.id, key.scope.text, key.text, nonce, LEASE, owner=engine.owner.name)
    granted = await _surely(engine, lambda: engine.store.claim([request], timeout=TIMEOUT))
    if granted.verdict is not Verdict.ACQUIRED or granted.record is None:
        return False
    note = {VALUE: str(considered), MISSED: str(missed)}
    completion = Complete(key.id, granted.record.token, nonce, stored=False, note=note)
    settled = await _surely(engine, lambda: engine.store.settle([completion], timeout=TIMEOUT))
    return settled.verdict is Verdict.OK


async def _surely(engine: Engine, call: Callable[[], Coroutine[Any, Any, list[Answer]]]) -> Answer:
    """A reply that was lost is asked for again: to the same nonce the store gives the same answer."""
    for left in TRIES_LEFT:
        try:
            return (await call())[0]
        except StoreError:
            if not left:
                raise
            await engine.runtime.sleep(FIRST_PAUSE * (1 + engine.runtime.jitter()))
    raise AssertionError("the last try returns or raises")
