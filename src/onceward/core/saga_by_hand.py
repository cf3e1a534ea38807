"""What a person says about a saga, as the request that tells the store: one compare-and-set, journal included."""

from __future__ import annotations

from onceward.errors import NotAcquired, ResultNotStored
from onceward.model.audit import Signature
from onceward.model.codec import Codec
from onceward.model.journal import Journal, journal_in, noted
from onceward.model.key import Key
from onceward.model.note import SAGA
from onceward.model.policy import Finding, applied
from onceward.model.record import FOREVER, Record, Resolution, Resolve, State, Validity, Verdict
from onceward.model.saga_rulings import Ruling, answered, retried
from onceward.model.transitions import Row, row_of

from .engine import Engine
from .step_run import part_of

TIMEOUT = 5.0
RETRIED = (Row.FAILED, Row.REFUSED, Row.PARKED)
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


def request_of(record: Record, ruling: Ruling, validity: Validity = FOREVER) -> Resolve:
    """The saga goes on from there, or is over."""
    note = {SAGA: ""} if ruling.journal is None else noted(ruling.journal)
    over = Resolution.ABANDON if ruling.over else Resolution.NOT_APPLIED
    return Resolve(record.id, record.token, over, validity=validity, note=note, state_seen=record.state)


def retry_of(record: Record, now: int) -> Resolve:
    """The request that lets it go on, or begin anew; raises NotAcquired if there is nothing to let go on."""
    journal = journal_in(record.note)
    if journal is None or row_of(record, now) not in RETRIED:
        raise NotAcquired(f"nothing to retry: it is {record.state}, and no saga that waits or failed", key=record.key)
    if record.state is State.PARKED and record.error_type == NEEDS_AN_ANSWER:
        raise NotAcquired(
            f"{record.error}; without an answer it would only be parked again",
            key=record.key,
            hint="find out, and resolve it: applied, not applied, or abandon",
        )
    return request_of(record, retried(journal))


async def retry(engine: Engine, key: Key, signed: Signature | None = None) -> None:
    """Let a saga go on that waits for a person or was undone."""
    await engine.ready()
    answer = (await engine.store.read([key.id], timeout=TIMEOUT))[0]
    if answer.record is None:
        raise NotAcquired("nothing to retry: there is no such saga", key=key.text)
    request = retry_of(answer.record, answer.now)
    settled = (await engine.store.settle([request], timeout=TIMEOUT, signed=signed))[0]
    if settled.verdict is not Verdict.OK:
        raise NotAcquired("the record changed while we looked; look again", key=key.text)
    engine.tell("resolved", key, settled.record, reason="retry")


def _journal(record: Record) -> Journal:
    journal = journal_in(record.note)
    if journal is None:
        raise NotAcquired("there is no saga under this key", key=record.key)
    return journal
