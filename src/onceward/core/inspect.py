"""Looking at records and clearing them: read, forget, resolve, purge, and what was done by hand."""

from __future__ import annotations

from msgspec.structs import replace

from onceward.errors import AlreadyRunning, InvalidKey, NotAcquired, StoreBroken, VersionSkew
from onceward.model.audit import AuditEntry, AuditFilter, Signature
from onceward.model.codec import Codec
from onceward.model.key import Key
from onceward.model.note import SAGA, done_with
from onceward.model.policy import Finding, Policy, applied, not_applied
from onceward.model.record import Record, Resolution, Resolve, Seen, State, Verdict
from onceward.model.view import Entry
from onceward.ports import Filter, KeepsCounts, KeepsNewest, Migrates

from .acquire import lease_left
from .engine import Engine

TIMEOUT = 5.0
SEARCH = 30.0  # a look at every record, for a person


async def locate(engine: Engine, key: Key, *, by_text: bool) -> bytes:
    """The record's id. By its text, for people who have nothing but a log line: a slow search, if it is not found."""
    await engine.ready()
    if not by_text or await _holds_work(engine, key.id, free=True):
        return key.id
    wanted = Filter(scope=key.scope.text, key=key.text)
    page = await engine.store.scan(wanted, cursor=None, limit=2, timeout=SEARCH)
    found = page.records
    if page.unreadable:
        raise StoreBroken(
            "a record holds what no Onceward of its version writes", key=key.text, hint="was it edited by hand?"
        )
    if len(found) > 1:
        raise InvalidKey("several records show this text", key=key.text, hint="give the key itself: fn.key(…)")
    return found[0].id if found else key.id


async def _holds_work(engine: Engine, id: bytes, *, free: bool = False) -> bool:
    """Whether there is a record (that is not FREE, or may be). One that cannot be read counts: it can be removed."""
    try:
        record = (await engine.store.read([id], timeout=TIMEOUT))[0].record
    except StoreBroken:
        return True
    return record is not None and (free or record.state is not State.FREE)


async def read(engine: Engine, key: Key, codec: Codec, *, by_text: bool = False) -> Entry | None:
    """The record under the key, or None. FREE counts as none: it holds no work."""
    id = await locate(engine, key, by_text=by_text)
    answer = (await engine.store.read([id], timeout=TIMEOUT))[0]
    if answer.record is None or answer.record.state is State.FREE:
        return None
    return Entry(answer.record, answer.now, codec)


async def forget(
    engine: Engine,
    key: Key,
    *,
    force: bool,
    by_text: bool = False,
    seen: Entry | None = None,
    signed: Signature | None = None,
) -> bool:
    """Make the key free again; tells whether there was anything. A live owner is spared unless forced.

    By force, a record that cannot be read any more is removed too. With `seen`, only if it is still that record.
    """
    id = await locate(engine, key, by_text=by_text)
    there = await _holds_work(engine, id)
    sights = None if seen is None else {id: Seen(seen.token, seen.state)}
    if there and not force:
        sights = sights or await _without_effects(engine, id, key)
    answer = (await engine.store.forget([id], force=force, timeout=TIMEOUT, seen=sights, signed=signed))[0]
    if answer.verdict is Verdict.LOST:
        raise NotAcquired("the record changed since it was seen, so it was not forgotten; look again", key=key.text)
    if answer.verdict is Verdict.REFUSED:
        raise AlreadyRunning(
            "its lease is not over, so it was not forgotten",
            key=key.text,
            retry_after=lease_left(answer),
            hint="wait, or force it",
        )
    if answer.verdict is Verdict.SKEW:
        raise VersionSkew(
            "the record was written by a newer Onceward; left alone", key=key.text, hint="upgrade this process"
        )
    if there:
        engine.tell("forgotten", key, answer.record, reason="forced" if force else "")
    return there


async def _without_effects(engine: Engine, id: bytes, key: Key) -> dict[bytes, Seen] | None:
    """A half-done saga is not forgotten by the way: what it has done would stay, and nobody would know of it."""
    record = (await engine.store.read([id], timeout=TIMEOUT))[0].record
    if record is None or not record.note.get(SAGA):
        return None
    from .saga_by_hand import refuse_to_forget  # for those who have any

    refuse_to_forget(record, key.text)
    return {id: Seen(record.token, record.state)}


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
    """Say how a parked attempt ended: applied(value), not_applied (it may run again), or abandoned (it may not)."""
    id = await locate(engine, key, by_text=by_text)
    answer = (await engine.store.read([id], timeout=TIMEOUT))[0]
    record = answer.record
    resolution = Resolution.NOT_APPLIED if finding is not_applied else Resolution.ABANDON
    if isinstance(finding, applied):
        resolution = Resolution.APPLIED
    if record is None or not _may_resolve(record, answer.now, resolution):
        raise NotAcquired(
            f"nothing to resolve: it is {record.state if record else 'absent'}, not PARKED",
            key=key.text,
            hint="a function's record is found by fn.key(…), or by its text and name=",
        )
    validity = policy.window.validity(answer.now)
    if record.note.get(SAGA):  # what is known is about one of its steps
        from .saga_by_hand import resolution_of_saga  # for those who have any

        request = await resolution_of_saga(engine, record, resolution, finding, codec)
        request = replace(request, validity=validity)
    elif isinstance(finding, applied):
        encoded = await engine.encode(codec, finding.value, id)
        request = Resolve(
            id,
            record.token,
            resolution,
            encoded.data,
            encoded.digest,
            encoded.data is not None,
            validity,
            done_with(record.note),
        )
    else:
        request = Resolve(id, record.token, resolution, validity=validity)
    if signed is not None:
        signed = replace(signed, detail=resolution.value)
    settled = (await engine.store.settle([request], timeout=TIMEOUT, signed=signed))[0]
    if settled.verdict is not Verdict.OK:
        raise NotAcquired("the record changed while we looked; look again", key=key.text)
    engine.tell("resolved", key, settled.record, reason=resolution.value)
    if record.note.get(SAGA):
        from .saga_by_hand import hand_on

        await hand_on(engine.store, request, record, engine.world.nonce(), engine.owner.name)


def _may_resolve(record: Record, now: int, resolution: Resolution) -> bool:
    """Whoever is PARKED; and a saga that waits may be abandoned, also after somebody has let it go on."""
    if record.state is State.PARKED:
        return True
    if resolution is not Resolution.ABANDON or not record.note.get(SAGA):
        return False
    from .saga_by_hand import may_be_given_up

    return may_be_given_up(record, now)


async def purge(engine: Engine, limit: int, signed: Signature | None = None) -> int:
    """Delete up to `limit` records that answer for nothing any more, and of the states what has expired."""
    await engine.ready()
    gone = await engine.store.purge(limit, timeout=SEARCH, signed=signed)
    if gone < limit and isinstance(engine.store, KeepsNewest):
        gone += await engine.store.expire_newest(limit - gone, timeout=SEARCH)
    if isinstance(engine.store, KeepsCounts):
        await engine.store.expire_counts(limit, timeout=SEARCH)  # no records: as audit entries, not counted among them
    return gone


async def migrate(engine: Engine) -> None:
    """Bring the store's tables up to date. A twin does it: the store itself may not open without them."""
    engine.world.check()
    own = engine.store.twin()
    if isinstance(own, Migrates) and not own.inline:
        await own.migrate(engine.world)


async def audit(
    engine: Engine, key: Key | None, *, within: int | None, limit: int, by_text: bool = False
) -> list[AuditEntry]:
    """What was changed by hand, the newest first: under this key, or under all."""
    await engine.ready()
    id = None if key is None else await locate(engine, key, by_text=by_text)
    return await engine.store.audit(AuditFilter(id=id, within=within), limit=limit, timeout=SEARCH)
