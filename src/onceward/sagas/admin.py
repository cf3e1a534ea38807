"""What operators do with sagas: resolve, retry and compensate them.

Each decision is one `Resolve` request to the store: a compare-and-set that includes the new journal.
"""

from __future__ import annotations

from contextlib import suppress

from onceward.engine.engine import Engine
from onceward.errors import NotAcquired, ResultNotStored, StoreError
from onceward.keys.key import Key
from onceward.protocol.hints import cli_command, resolve_hint
from onceward.protocol.note import SAGA
from onceward.protocol.policy import Finding, Policy, applied
from onceward.protocol.ports import Store
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import FOREVER, ClaimRequest, Resolution, Resolve, Validity, Verdict
from onceward.protocol.transitions import Row, row_of
from onceward.results.codec import Codec

from .decisions import (
    REQUEUED_LEASE,
    SagaDecision,
    reject_open_step,
    remaining_effects,
    resolve_open_step,
    retry_open_step,
)
from .journal import Journal, journal_from, note_of
from .step_context import associated_data

TIMEOUT = 5.0
RETRYABLE_ROWS = (Row.FAILED_RETRYABLE, Row.FAILED_FINAL, Row.PARKED)
ABANDONABLE_ROWS = (Row.FAILED_RETRYABLE, Row.PENDING_LAPSED, Row.RELEASED_UNVERIFIED, Row.PARKED)
"""Where an operator may stop a saga."""

UNSETTLED = "Unsettled"
"""The error type of a saga that is parked because a step may be neither repeated nor looked up."""


async def resolution_request(
    engine: Engine, record: Record, resolution: Resolution, finding: applied | Finding, codec: Codec
) -> Resolve:
    """Return the request for what an operator found out about the open step."""
    journal = _journal(record)
    step = journal.open_step
    result = None
    if isinstance(finding, applied) and step is not None:
        encoded = await engine.encode(codec, finding.value, associated_data(record.id, journal.cycle, step.name))
        if encoded.data is None:
            raise ResultNotStored(f"the result of step {step.name} cannot be stored: {encoded.reason}", key=record.key)
        result = encoded.data
    return resolve_request(record, resolve_open_step(journal, resolution, result))


def resolve_request(record: Record, decision: SagaDecision, validity: Validity = FOREVER) -> Resolve:
    """Return the request that stores a decision: the saga continues with this journal, or ends."""
    note = {SAGA: ""} if decision.journal is None else note_of(decision.journal)
    resolution = Resolution.ABANDON if decision.over else Resolution.NOT_APPLIED
    return Resolve(record.id, record.token, resolution, validity=validity, note=note, state_seen=record.state)


def may_be_abandoned(record: Record, now: int) -> bool:
    """Return whether this is a saga that waits for an operator, a delivery or a recovery worker."""
    return bool(record.note.get(SAGA)) and row_of(record, now) in ABANDONABLE_ROWS


def compensation_request(record: Record, now: int, validity: Validity) -> Resolve:
    """Return the request that records the open step as not done, and undoes the steps before it."""
    if not may_be_abandoned(record, now):
        raise NotAcquired(f"nothing to undo: it is {record.state}, and not a saga that waits", key=record.key)
    return resolve_request(record, reject_open_step(_journal(record)), validity)


async def compensate(engine: Engine, key: Key, policy: Policy) -> None:
    """Undo a saga whose open step, as an operator knows, was not done."""
    record, now = await _read(engine, key, "undo")
    request = compensation_request(record, now, policy.window.validity(now))
    await _send(engine, key, request, record, "give up")


async def requeue(store: Store, request: Resolve, record: Record, nonce: bytes, owner: str) -> None:
    """Leave a saga that may continue to the next worker, as if its lease had expired: so it waits without a time limit.

    If another worker claims the saga first, it stays with that worker.
    """
    if request.resolution is not Resolution.NOT_APPLIED or not request.note.get(SAGA, record.note.get(SAGA)):
        return
    claim = ClaimRequest(
        record.id, record.scope, record.key, nonce, REQUEUED_LEASE, after_crash=AfterCrash.VERIFY, owner=owner
    )
    with suppress(StoreError):  # the decision is written; a delivery within 30 days finds it
        await store.claim([claim], timeout=TIMEOUT)


def retry_request(record: Record, now: int) -> Resolve:
    """Return the request that lets a saga continue or start again. Raise NotAcquired if there is nothing to retry."""
    journal = journal_from(record.note)
    if journal is None or row_of(record, now) not in RETRYABLE_ROWS:
        raise NotAcquired(
            f"nothing to retry: it is {record.state}, and not a saga that waits or failed", key=record.key
        )
    if record.state is RecordState.PARKED and record.error_type == UNSETTLED:
        raise NotAcquired(
            f"{record.error}; a retry would only be parked again",
            key=record.key,
            hint=f"find out whether the step took effect, then: {resolve_hint(record.key)}",
        )
    return resolve_request(record, retry_open_step(journal))


async def retry(engine: Engine, key: Key) -> None:
    """Let a saga continue that waits for an operator, or start it again if it was undone."""
    record, now = await _read(engine, key, "retry")
    await _send(engine, key, retry_request(record, now), record, "retry")


async def _read(engine: Engine, key: Key, what: str) -> tuple[Record, int]:
    await engine.ready()
    [answer] = await engine.store.read([key.id], timeout=TIMEOUT)
    if answer.record is None:
        raise NotAcquired(f"nothing to {what}: there is no saga under this key", key=key.text)
    return answer.record, answer.now


async def _send(engine: Engine, key: Key, request: Resolve, record: Record, reason: str) -> None:
    [settled] = await engine.store.settle([request], timeout=TIMEOUT)
    if settled.verdict is not Verdict.OK:
        raise NotAcquired("the record changed since it was read; read it again", key=key.text)
    engine.emit("resolved", key, settled.record, reason=reason)
    await requeue(engine.store, request, record, engine.runtime.nonce(), engine.owner.name)


def refuse_to_forget(record: Record, key: str) -> None:
    """Raise NotAcquired if an unfinished saga has effects that would remain without a record of them."""
    journal = journal_from(record.note)
    effects = [] if journal is None or record.state is RecordState.COMPLETED else remaining_effects(journal)
    if effects:
        raise NotAcquired(
            f"the saga has done, or may have done: {', '.join(effects)}; forgetting it would not undo these steps",
            key=key,
            hint=f"undo it, `{cli_command('resolve', key, '--abandon')}`, or force it",
        )


def _journal(record: Record) -> Journal:
    journal = journal_from(record.note)
    if journal is None:
        raise NotAcquired("there is no saga under this key", key=record.key)
    return journal
