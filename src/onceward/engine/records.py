"""Read and administer records: read, forget, resolve, purge, migrate, audit."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from onceward.errors import AlreadyRunning, ConfigurationError, InvalidKey, NotAcquired, RecordBroken, VersionSkew
from onceward.keys.key import Key
from onceward.protocol.audit import AuditEntry, AuditFilter, AuditSignature
from onceward.protocol.note import HTTP_REQUEST, KIND, note_without_input
from onceward.protocol.policy import Finding, Policy, abandon, applied, not_applied
from onceward.protocol.ports import Filter
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, ExpectedRecord, Resolution, Resolve, Verdict
from onceward.protocol.unstored import RESOLVED_WITHOUT, unstored_note
from onceward.protocol.window import recorded_window
from onceward.results.codec import NO_DIGEST, Codec, Encoded

from .engine import Engine
from .entry import Entry
from .job import NO_KEY
from .refusal import lease_left

TIMEOUT = 5.0
NOTHING = Encoded(None, NO_DIGEST, RESOLVED_WITHOUT)
SEARCH_TIMEOUT = 30.0  # seconds: it may scan all records


async def locate(engine: Engine, key: Key, *, by_text: bool) -> bytes:
    """Return the record's id. With `by_text`, search by the key's display text if the key itself is not found.

    The search is slow. It is for people who only have a log line.
    """
    await engine.ready()
    if not by_text or await _has_record(engine, key.id, free=True):
        return key.id
    wanted = Filter(scope=key.scope.text, key=key.text)
    page = await engine.store.scan(wanted, cursor=None, limit=2, timeout=SEARCH_TIMEOUT)
    found = page.records
    if page.unreadable:
        raise RecordBroken(
            "this record has invalid content",
            key=key.text,
            hint="was it edited by hand?",
        )
    if len(found) > 1:
        raise InvalidKey("several records have this key text", key=key.text, hint="pass the key itself: fn.key(…)")
    return found[0].id if found else key.id


async def _has_record(engine: Engine, id: bytes, *, free: bool = False) -> bool:
    """Return whether there is a record. A FREE one counts only with `free`; an unreadable one always, for `force`."""
    try:
        record = (await engine.store.read([id], timeout=TIMEOUT))[0].record
    except RecordBroken:
        return True
    return record is not None and (free or record.state is not RecordState.FREE)


async def check_store(engine: Engine) -> None:
    """Raise if the store cannot be opened, lacks its tables, or does not answer a read. In the mode off, do nothing."""
    if engine.rollout.mode != "off":
        await engine.ready()
        await engine.store.read([NO_KEY.id], timeout=TIMEOUT)


async def read(engine: Engine, key: Key, codec: Codec, *, by_text: bool = False) -> Entry | None:
    """Return the record under the key, or None. A FREE record counts as None: it holds no work."""
    _, answer = await fetch(engine, key, by_text=by_text)
    if answer.record is None or answer.record.state is RecordState.FREE:
        return None
    return Entry(answer.record, answer.now, codec)


async def fetch(engine: Engine, key: Key, *, by_text: bool = False) -> tuple[bytes, Answer]:
    """Return the id under which the key is stored, and what the store holds there."""
    id = await locate(engine, key, by_text=by_text)
    return id, (await engine.store.read([id], timeout=TIMEOUT))[0]


Guard = Callable[[Record, str], ExpectedRecord | None]
"""Raises if this record must not be forgotten. Otherwise returns what must still hold when it is forgotten, or None."""


async def forget(
    engine: Engine,
    key: Key,
    *,
    force: bool,
    by_text: bool = False,
    seen: Entry | None = None,
    signed: AuditSignature | None = None,
    guard: Guard | None = None,
) -> bool:
    """Forget the record; return whether there was one. Raise if its lease has not expired, unless forced.

    With `force`, an unreadable record is removed too. With `seen`, raise if the record has changed since.
    """
    id = await locate(engine, key, by_text=by_text)
    existed = await _has_record(engine, id)
    expected = None if seen is None else {id: ExpectedRecord(seen.token, seen.state)}
    if existed and not force and expected is None and guard is not None:
        record = (await engine.store.read([id], timeout=TIMEOUT))[0].record
        unchanged = None if record is None else guard(record, key.text)
        expected = None if unchanged is None else {id: unchanged}
    answer = (await engine.store.forget([id], force=force, timeout=TIMEOUT, seen=expected, signed=signed))[0]
    if answer.verdict is Verdict.LOST:
        raise NotAcquired("the record changed since it was read, so it was not forgotten; read it again", key=key.text)
    if answer.verdict is Verdict.REFUSED:
        raise AlreadyRunning(
            "its lease has not expired, so it was not forgotten",
            key=key.text,
            retry_after=lease_left(answer),
            hint="wait, or force it",
        )
    if answer.verdict is Verdict.SKEW:
        raise VersionSkew(
            "the record was written by a newer Onceward; left alone", key=key.text, hint="upgrade this process"
        )
    if existed:
        engine.emit("forgotten", key, answer.record, reason="forced" if force else "")
    return existed


def resolution_of(finding: applied | Finding) -> Resolution:
    """Return what the store calls this finding. Anything else raises: it must not be taken for `abandon`."""
    if isinstance(finding, applied):
        return Resolution.APPLIED
    for known, resolution in ((not_applied, Resolution.NOT_APPLIED), (abandon, Resolution.ABANDON)):
        if finding is known:
            return resolution
    raise ConfigurationError(
        f"{finding!r} does not say how the attempt ended", hint="pass applied(value), not_applied or abandon"
    )


def nothing_to_resolve(answer: Answer, key: Key) -> NotAcquired:
    from onceward.protocol.transitions import Row, row_of  # imported here: usually only stores need the table

    record = answer.record
    match row_of(record, answer.now):
        case Row.PENDING_LIVE:
            state, hint = "its lease has not expired, so its worker may finish it", "wait until the lease has expired"
        case Row.RELEASED_UNVERIFIED:
            state, hint = "it was released before verification", "deliver it again: that finds out whether it happened"
        case _:
            state = f"it is {record.state if record else 'absent'}, not PARKED"
            hint = "a function's record is found by fn.key(…), or by its text and name="
    return NotAcquired(f"nothing to resolve: {state}", key=key.text, hint=hint)


NO_RESPONSE = "it is an HTTP request, and its response is lost → resolve it without a result; its client then gets 410"


def is_resolvable(record: Record, now: int) -> bool:
    """Return whether an operator may record how the attempt ended: it is PARKED, or its lease has expired."""
    from onceward.protocol.transitions import Row, row_of  # imported here: usually only stores need the table

    return row_of(record, now) in (Row.PARKED, Row.PENDING_LAPSED)


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
    """Record how a parked attempt ended: applied(value), not_applied (it may run again), or abandoned (it may not)."""
    resolution_of(finding)  # raises before the store is asked
    _, answer = await fetch(engine, key, by_text=by_text)
    await resolve_fetched(engine, key, answer, finding, codec=codec, policy=policy, signed=signed)


async def resolve_fetched(
    engine: Engine,
    key: Key,
    answer: Answer,
    finding: applied | Finding,
    *,
    codec: Codec,
    policy: Policy,
    signed: AuditSignature | None,
) -> None:
    """Resolve the record as it was fetched. If it has changed since then, the store refuses."""
    record, resolution = answer.record, resolution_of(finding)
    if record is None or not is_resolvable(record, answer.now):
        raise nothing_to_resolve(answer, key)
    window = recorded_window(record) or policy.window
    validity = window.validity(answer.now)
    if isinstance(finding, applied):
        is_request = record.note.get(KIND) == HTTP_REQUEST
        if is_request and finding.value is not None:
            raise ConfigurationError(NO_RESPONSE, key=key.text)
        encoded = NOTHING if is_request else await engine.encode(codec, finding.value, record.id, record.cycle)
        if encoded.data is None and codec.stores_results and finding.value is not None:
            raise ConfigurationError(
                f"the value of applied(…) cannot be stored, so nothing was changed: {encoded.reason}",
                key=key.text,
                hint="pass a value of the declared type, or applied() without a value",
            )
        missing = {} if encoded.data is not None or not codec.stores_results else unstored_note(RESOLVED_WITHOUT)
        request = Resolve(
            record.id,
            record.token,
            resolution,
            encoded.data,
            encoded.digest,
            encoded.data is not None,
            validity,
            {**note_without_input(record.note), **missing},
            record.state,
        )
    else:
        request = Resolve(record.id, record.token, resolution, validity=validity, state_seen=record.state)
    await send_resolution(engine, key, request, resolution, signed)


async def send_resolution(
    engine: Engine, key: Key, request: Resolve, resolution: Resolution, signed: AuditSignature | None
) -> None:
    """Store the resolution if the record is still the one that it is about; raise NotAcquired if it is not."""
    if signed is not None:
        signed = replace(signed, detail=resolution.value)
    settled = (await engine.store.settle([request], timeout=TIMEOUT, signed=signed))[0]
    if settled.verdict is not Verdict.OK:
        raise NotAcquired("the record changed in the meantime; read it again", key=key.text)
    engine.emit("resolved", key, settled.record, reason=resolution.value)


async def purge(engine: Engine, limit: int, signed: AuditSignature | None = None) -> int:
    """Delete up to `limit` expired records, then expired entity states and counters."""
    await engine.ready()
    gone = await engine.store.purge(limit, timeout=SEARCH_TIMEOUT, signed=signed)
    latest, counters = engine.store.latest, engine.store.counters
    if gone < limit and latest is not None:
        gone += await latest.expire_latest(limit - gone, timeout=SEARCH_TIMEOUT)
    if counters is not None:
        await counters.expire_counts(
            limit, timeout=SEARCH_TIMEOUT
        )  # not included in the count, as they are not records
    return gone


async def migrate(engine: Engine) -> None:
    """Bring the store's tables up to date. A clone does it: the store itself may not open without them."""
    engine.runtime.check()
    own = engine.store.clone()
    if own.migrations is not None and not own.inline:
        await own.migrations.migrate(engine.runtime)


async def audit(
    engine: Engine, key: Key | None, *, within: int | None, limit: int, by_text: bool = False
) -> list[AuditEntry]:
    """Return what was changed by hand, newest first: under this key, or under all keys."""
    await engine.ready()
    id = None if key is None else await locate(engine, key, by_text=by_text)
    return await engine.store.audit(AuditFilter(id=id, within=within), limit=limit, timeout=SEARCH_TIMEOUT)
