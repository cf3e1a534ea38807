"""Read, forget and resolve records that may be sagas. Records of any other kind are passed on to `engine.records`."""

from __future__ import annotations

from msgspec.structs import replace

from onceward.engine import records
from onceward.engine.engine import Engine
from onceward.engine.entry import Entry
from onceward.keys.key import Key
from onceward.protocol.audit import Signature
from onceward.protocol.note import SAGA
from onceward.protocol.policy import Finding, Policy, applied
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Resolution, Seen
from onceward.results.codec import Codec

from .admin import hand_on, may_be_given_up, refuse_to_forget, resolution_of_saga
from .journal import Journal, journal_in


class SagaEntry(Entry):
    """The record of a saga at the time it was read."""

    __slots__ = ()

    @property
    def saga(self) -> Journal | None:
        """How far the saga has come; None if it has not begun."""
        return journal_in(self.record.note)


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
    signed: Signature | None = None,
) -> bool:
    """As `engine.records.forget`. An unfinished saga whose steps took effect is refused unless forced."""
    return await records.forget(engine, key, force=force, by_text=by_text, seen=seen, signed=signed, guard=_guard)


def _guard(record: Record, key: str) -> Seen | None:
    if not record.note.get(SAGA):
        return None
    refuse_to_forget(record, key)
    return Seen(record.token, record.state)


async def resolve(
    engine: Engine,
    key: Key,
    finding: applied | Finding,
    codec: Codec,
    policy: Policy,
    *,
    by_text: bool = False,
    signed: Signature | None = None,
) -> None:
    """As `engine.records.resolve`. For a saga, the finding is about the step for which it is PARKED."""
    _, answer = await records.fetch(engine, key, by_text=by_text)
    record = answer.record
    if record is None or not record.note.get(SAGA):
        await records.resolve(engine, key, finding, codec, policy, by_text=by_text, signed=signed)
        return
    resolution = records.resolution_of(finding)
    if not _may_resolve(record, answer.now, resolution):
        raise records.nothing_to_resolve(record, key)
    request = await resolution_of_saga(engine, record, resolution, finding, codec)
    request = replace(request, validity=policy.window.validity(answer.now))
    await records.send_resolution(engine, key, request, resolution, signed)
    await hand_on(engine.store, request, record, engine.runtime.nonce(), engine.owner.name)


def _may_resolve(record: Record, now: int, resolution: Resolution) -> bool:
    """A saga may be abandoned while it waits, too: also after an operator has let it continue."""
    return record.state is RecordState.PARKED or (resolution is Resolution.ABANDON and may_be_given_up(record, now))
