"""Read, forget and resolve records that may be sagas. Other records are passed on to `engine.records`."""

from __future__ import annotations

from msgspec.structs import replace

from onceward.engine import records
from onceward.engine.engine import Engine
from onceward.engine.entry import Entry
from onceward.errors import NotAcquired
from onceward.keys.key import Key
from onceward.protocol.audit import AuditSignature
from onceward.protocol.note import SAGA
from onceward.protocol.policy import Finding, Policy, applied
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import ExpectedRecord, Resolution
from onceward.results.codec import Codec

from .admin import may_be_abandoned, refuse_to_forget, requeue, resolution_request
from .journal import Journal, journal_from


class SagaEntry(Entry):
    """The record of a saga at the time it was read."""

    __slots__ = ()

    @property
    def saga(self) -> Journal | None:
        """How far the saga has come; None if it has not begun."""
        return journal_from(self.record.note)


async def read(engine: Engine, key: Key, codec: Codec, *, by_text: bool = False) -> SagaEntry | None:
    """Return the record under the key, or None. A FREE record counts as None: it holds no work."""
    entry = await records.read(engine, key, codec, by_text=by_text)
    return None if entry is None else SagaEntry(entry.record, entry.now, codec)


async def forget(
    engine: Engine,
    key: Key,
    *,
    force: bool,
    by_text: bool = False,
    seen: Entry | None = None,
    signed: AuditSignature | None = None,
) -> bool:
    """Like `engine.records.forget`. An unfinished saga whose steps took effect is refused unless forced."""
    return await records.forget(engine, key, force=force, by_text=by_text, seen=seen, signed=signed, guard=_guard)


def _guard(record: Record, key: str) -> ExpectedRecord | None:
    if not record.note.get(SAGA):
        return None
    refuse_to_forget(record, key)
    return ExpectedRecord(record.token, record.state)


async def resolve(
    engine: Engine,
    key: Key,
    finding: applied | Finding,
    codec: Codec,
    policy: Policy,
    *,
    by_text: bool = False,
    signed: AuditSignature | None = None,
) -> None:
    """Like `engine.records.resolve`. For a saga, the finding is about the step for which it is PARKED."""
    resolution = records.resolution_of(finding)
    _, answer = await records.fetch(engine, key, by_text=by_text)
    record = answer.record
    if record is None or not record.note.get(SAGA):
        await records.resolve_fetched(engine, key, answer, finding, codec=codec, policy=policy, signed=signed)
        return
    # An operator may abandon a saga even if it could still continue.
    abandons = resolution is Resolution.ABANDON and may_be_abandoned(record, answer.now)
    if record.state is not RecordState.PARKED and not abandons:
        raise NotAcquired(
            f"nothing to resolve: the saga is {record.state}, not PARKED",
            key=key.text,
            hint="its next delivery or a recovery worker continues it",
        )
    request = await resolution_request(engine, record, resolution, finding, codec)
    request = replace(request, validity=policy.window.validity(answer.now))
    await records.send_resolution(engine, key, request, resolution, signed)
    await requeue(engine.store, request, record, engine.runtime.nonce(), engine.owner.name)
