"""The cursor of a schedule: all slots up to it are settled or missed. It only moves forward.

It is stored in two ordinary records. Both are COMPLETED with an unlimited window, so that they are never purged, and
only the larger value counts. To move the cursor, a runner forgets the record with the smaller value, claims it, and
completes it with the new value. It forgets the record only if it has not changed since it was read. If the runner
crashes in between, the larger value is unchanged. If several runners move the cursor concurrently, one wins. All
requests are those of any record: a store needs to know nothing about schedules.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from onceward.engine.engine import Engine
from onceward.engine.retry import ask
from onceward.protocol.operation_names import NEXT_SLOT
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, ClaimRequest, Complete, ExpectedRecord, Verdict

from .definition import Schedule

LEASE = 10_000_000  # µs: long enough for two calls, and short enough for other runners to continue after a crash
TIMEOUT = 2.0
VALUE, MISSED, SINCE = "considered", "missed", "since"


class Cursor(Struct, frozen=True):
    """How far a schedule has come, and the record that the next move overwrites."""

    considered: int
    missed: int
    since: int  # when the schedule was registered; 0: not known
    spare: Record | None
    spare_at: int  # which of the two records holds the smaller value, or no value


def cursor_of(answers: Sequence[Answer]) -> Cursor | None:
    """Return the cursor stored in the two records, or None if the schedule is new."""
    values = [_value(answer.record) for answer in answers]
    current = max((0, 1), key=lambda number: values[number] or (-1, 0, 0))
    value = values[current]
    if value is None:
        return None
    spare = 1 - current
    return Cursor(*value, answers[spare].record, spare)


def _value(record: Record | None) -> tuple[int, int, int] | None:
    if record is None or record.state is not RecordState.COMPLETED or VALUE not in record.note:
        return None
    note = record.note
    return int(note[VALUE]), int(note.get(MISSED, "0")), int(note.get(SINCE, "0"))


async def move(engine: Engine, schedule: Schedule, seen: Cursor | None, considered: int, missed: int) -> bool:
    """Move the cursor from `seen` to `considered`, with the total of missed slots.

    Return False if another runner has moved it or is moving it.
    """
    number = 0 if seen is None else seen.spare_at
    key = schedule.cursors[number]
    spare = None if seen is None else seen.spare
    if spare is not None and spare.state not in (RecordState.FREE, RecordState.PENDING):
        unchanged = {key.id: ExpectedRecord(spare.token, spare.state)}
        freed = await engine.store.forget([key.id], force=False, timeout=TIMEOUT, seen=unchanged)
        if freed[0].verdict is not Verdict.OK:
            return False
    nonce = engine.runtime.nonce()
    request = ClaimRequest(key.id, key.scope.text, key.text, nonce, LEASE, owner=engine.owner.name)
    [granted] = await ask(engine, lambda: engine.store.claim([request], timeout=TIMEOUT))
    if granted.verdict is not Verdict.ACQUIRED or granted.record is None:
        return False
    following = schedule.table.next(considered)
    note = {
        VALUE: str(considered),
        MISSED: str(missed),
        SINCE: str(considered if seen is None else seen.since),
        NEXT_SLOT: "" if following is None else str(following),
    }
    completion = Complete(key.id, granted.record.token, nonce, stored=False, note=note)
    [settled] = await ask(engine, lambda: engine.store.settle([completion], timeout=TIMEOUT))
    return settled.verdict is Verdict.OK
