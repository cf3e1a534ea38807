"""What a person says about a saga, as the request that tells the store: one compare-and-set, journal included."""

from __future__ import annotations

from contextlib import suppress

from onceward.engine.engine import Engine
from onceward.errors import NotAcquired, ResultNotStored, StoreError
from onceward.keys.key import Key
from onceward.protocol.audit import Signature
from onceward.protocol.hints import resolving, typed
from onceward.protocol.note import SAGA
from onceward.protocol.policy import Finding, Policy, applied
from onceward.protocol.ports import Store
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import FOREVER, ClaimRequest, Resolution, Resolve, Validity, Verdict
from onceward.protocol.transitions import Row, row_of
from onceward.results.codec import Codec

from .decisions import HANDED_ON, SagaDecision, answered, refused, retried, standing_effects
from .journal import Journal, journal_in, noted
from .step_context import part_of

TIMEOUT = 5.0
RETRIED = (Row.FAILED, Row.REFUSED, Row.PARKED)
GIVEN_UP = (Row.FAILED, Row.LAPSED, Row.HANDED_BACK, Row.PARKED)
"""Where a person may say that a saga is not to go on."""

NEEDS_AN_ANSWER = "Unsettled"
"""Why a step is parked that may be neither repeated nor looked up."""


async def resolution_of_saga(
    engine: Engine,
    record: Record,
    resolution: Resolution,
    finding: applied | Finding,
    codec: Codec,
) -> Resolve:
    """The request for what somebody has found out about the step that stands in the way."""
    journal = _journal(record)
    line = journal.open_step
    result = None
    if isinstance(finding, applied) and line is not None:
        encoded = await engine.encode(codec, finding.value, part_of(record.id, line.name))
        if encoded.data is None:
            raise ResultNotStored(f"the result of step {line.name} cannot be stored: {encoded.reason}", key=record.key)
        result = encoded.data
    return request_of(record, answered(journal, resolution, result))


def request_of(record: Record, ruling: SagaDecision, validity: Validity = FOREVER) -> Resolve:
    """The saga goes on from there, or is over."""
    note = {SAGA: ""} if ruling.journal is None else noted(ruling.journal)
    over = Resolution.ABANDON if ruling.over else Resolution.NOT_APPLIED
    return Resolve(record.id, record.token, over, validity=validity, note=note, state_seen=record.state)


def may_be_given_up(record: Record, now: int) -> bool:
    """Whether this is a saga that waits for somebody: for a person, a delivery, or a recovery worker."""
    return bool(record.note.get(SAGA)) and row_of(record, now) in GIVEN_UP


def giving_up(record: Record, now: int, validity: Validity) -> Resolve:
    """The request for: the step in the way was not done, and is not to be; undo the others."""
    if not may_be_given_up(record, now):
        raise NotAcquired(f"nothing to give up: it is {record.state}, and no saga that waits", key=record.key)
    return request_of(record, refused(_journal(record)), validity)


async def give_up(engine: Engine, key: Key, policy: Policy, signed: Signature | None = None) -> None:
    """A person knows that the step in the way was not done, and wants the others undone."""
    await engine.ready()
    answer = (await engine.store.read([key.id], timeout=TIMEOUT))[0]
    if answer.record is None:
        raise NotAcquired("nothing to give up: there is no such saga", key=key.text)
    request = giving_up(answer.record, answer.now, policy.window.validity(answer.now))
    await _told(engine, key, request, answer.record, signed=signed, reason="give up")


async def hand_on(store: Store, request: Resolve, record: Record, nonce: bytes, owner: str) -> None:
    """Leave a saga that may go on as one whose owner fell silent, which waits for ever. Whoever is faster has it."""
    if request.resolution is not Resolution.NOT_APPLIED or not request.note.get(SAGA, record.note.get(SAGA)):
        return
    claim = ClaimRequest(
        record.id, record.scope, record.key, nonce, HANDED_ON, after_crash=AfterCrash.VERIFY, owner=owner
    )
    with suppress(StoreError):  # what was said is written; a delivery within 30 days finds it as it is
        await store.claim([claim], timeout=TIMEOUT)


def retry_of(record: Record, now: int) -> Resolve:
    """The request that lets it go on, or begin anew; raises NotAcquired if there is nothing to let go on."""
    journal = journal_in(record.note)
    if journal is None or row_of(record, now) not in RETRIED:
        raise NotAcquired(f"nothing to retry: it is {record.state}, and no saga that waits or failed", key=record.key)
    if record.state is RecordState.PARKED and record.error_type == NEEDS_AN_ANSWER:
        raise NotAcquired(
            f"{record.error}; without an answer it would only be parked again",
            key=record.key,
            hint=f"find out, then: {resolving(record.key)}",
        )
    return request_of(record, retried(journal))


async def retry(engine: Engine, key: Key, signed: Signature | None = None) -> None:
    """Let a saga go on that waits for a person or was undone."""
    await engine.ready()
    answer = (await engine.store.read([key.id], timeout=TIMEOUT))[0]
    if answer.record is None:
        raise NotAcquired("nothing to retry: there is no such saga", key=key.text)
    request = retry_of(answer.record, answer.now)
    await _told(engine, key, request, answer.record, signed=signed, reason="retry")


async def _told(
    engine: Engine, key: Key, request: Resolve, record: Record, *, signed: Signature | None, reason: str
) -> None:
    settled = (await engine.store.settle([request], timeout=TIMEOUT, signed=signed))[0]
    if settled.verdict is not Verdict.OK:
        raise NotAcquired("the record changed while we looked; look again", key=key.text)
    engine.emit("resolved", key, settled.record, reason=reason)
    await hand_on(engine.store, request, record, engine.runtime.nonce(), engine.owner.name)


def refuse_to_forget(record: Record, key: str) -> None:
    """Raise NotAcquired if steps of an unfinished saga would stay done, with nobody left to know of them."""
    journal = journal_in(record.note)
    left = [] if journal is None or record.state is RecordState.COMPLETED else standing_effects(journal)
    if left:
        raise NotAcquired(
            f"it is a saga that has done, or may have done: {', '.join(left)}; forgotten, these stay as they are",
            key=key,
            hint=f"let it be undone, `{typed('resolve', key, '--abandon')}`, or force it",
        )


def _journal(record: Record) -> Journal:
    journal = journal_in(record.note)
    if journal is None:
        raise NotAcquired("there is no saga under this key", key=record.key)
    return journal
