"""The promises of the state table, as checks on one step of a history. `explore.py` makes the steps."""

from __future__ import annotations

from typing import NamedTuple

from onceward.protocol.record import NO_OWNER, AfterCrash, Record, RecordState
from onceward.protocol.requests import ClaimRequest, Validity, Verdict

CHANGES = frozenset({Verdict.ACQUIRED, Verdict.OK, Verdict.REPLAY, Verdict.PARKED})
"""Verdicts with which a record may have changed."""

Step = tuple[Record | None, Verdict]


class Grant(NamedTuple):
    """An ownership that a client believes it has. `ends` is on its own clock; None means without end."""

    token: int
    nonce: bytes
    ends: int | None


class ModelClient(NamedTuple):
    """What one caller knows, and which of its requests the network may deliver again."""

    calls: int = 0
    nonce: bytes = NO_OWNER  # of its last claim: the network may deliver it again, even after a crash
    asking: bool = False  # the reply was lost; it will repeat the claim
    grant: Grant | None = None
    settling: str = ""  # the reply was lost; it will send the same settlement again
    sent: tuple[str, int, bytes] | None = None  # its last settlement, which the network may deliver again


class SystemState(NamedTuple):
    """The record, the clients, both clocks, the faults that are left, and what an omniscient observer remembers."""

    record: Record | None
    clients: tuple[ModelClient, ModelClient]
    now: int  # on the store's clock, which can be set back
    elapsed: int  # on the clients' clocks, which cannot
    faults: int
    interventions: int
    steady: bool = True
    owner: tuple[int, bytes] | None = None
    highest: int = 0  # highest token so far
    answers_until: int = 0  # until when a completed record must be replayed, according to the answers of the clients


class BrokenPromise(Exception):
    """A promise does not hold."""


def after_claim(system: SystemState, request: ClaimRequest, record: Record | None, verdict: Verdict) -> SystemState:
    before = system.record
    after = observe(system, record)
    require(verdict in CHANGES or record == before, "a refusal changes nothing")
    if before is not None and before.nonce == request.nonce:
        require(record is not None and _ownership(record) == _ownership(before), "one claim, one grant")
        return after
    if before is not None:
        _check_answer(system, before, request, verdict)
    if verdict is Verdict.REPLAY and record is not None and record.slide:
        until = system.now + record.slide - record.slide // 8
        return after._replace(answers_until=max(system.answers_until, until))
    if verdict is not Verdict.ACQUIRED:
        return after
    if record is None or record.state is not RecordState.PENDING or record.nonce != request.nonce:
        raise BrokenPromise("the caller that acquires is the owner")
    require(record.token > system.highest, "tokens strictly grow per ownership")
    again = before is not None and before.cycle == record.cycle
    counted = before.attempt + 1 if before is not None and again else 1
    require(record.attempt == counted, "attempts count on claim")
    if before is not None and before.state is RecordState.PENDING:
        strictest = max(before.after_crash, request.after_crash)
        require(strictest is not AfterCrash.PARK, "an expired lease under park never runs again by itself")
        require(strictest is AfterCrash.RERUN or record.ask_first, "an expired lease under verify is verified first")
        require(again, "a takeover stays in its cycle")
    return after._replace(owner=(record.token, record.nonce))


def _check_answer(system: SystemState, before: Record, request: ClaimRequest, verdict: Verdict) -> None:
    """Check the answer of an existing record to a claim with a new nonce."""
    settled = before.state is RecordState.COMPLETED or (before.state is RecordState.FAILED and before.final)
    if settled and before.valid_until is not None and system.now >= before.valid_until:
        answers = before.state is RecordState.COMPLETED and system.now < system.answers_until
        require(not answers, "COMPLETED is never lost inside its window")
        require(verdict is Verdict.ACQUIRED, "a record after its window can be claimed")
    elif before.state is RecordState.PARKED or settled:
        require(verdict is not Verdict.ACQUIRED, f"{before.state} is never lost inside its window")
    if verdict is Verdict.MISMATCH:
        require(before.fingerprint != request.fingerprint, "the same payload is never a mismatch")


def after_owner_verb(
    system: SystemState, verb: str, owner: tuple[int, bytes], step: Step, validity: Validity
) -> SystemState:
    """Check the effect of an owner's request. `owner` is the token and nonce in the request."""
    record, verdict = step
    before = system.record
    after = observe(system, record)
    require(verdict in CHANGES or record == before, "a refusal changes nothing")
    if before is None or record is None or owner != system.owner:
        require(record == before and verdict is Verdict.LOST, "a replaced owner changes nothing")
        return after
    if before.state is RecordState.PENDING and not before.released:
        require(verdict is Verdict.OK, "an owner that was not replaced may still settle")
    if before.state is RecordState.PARKED and record.state is not RecordState.PARKED:
        require(verb == "complete", "PARKED ends only by resolve, forget or its owner's complete")
    if before.state is RecordState.COMPLETED:
        require(record == before, "COMPLETED is never lost inside its window")
    require(record.cycle == before.cycle, "an owner stays in its cycle")
    uncounted = 1 if verb == "release" and record != before else 0
    require(record.attempt == before.attempt - uncounted, "only release decrements attempts")
    if record.state is RecordState.COMPLETED and before.state is not RecordState.COMPLETED:
        return after._replace(answers_until=validity.end(system.now) or system.now)
    return after


def check_one_live_owner(system: SystemState) -> SystemState:
    working = [one.grant for one in system.clients if one.grant is not None and not one.settling]
    alive = [grant for grant in working if grant.ends is None or system.elapsed < grant.ends]
    require(len(alive) < 2, "at most one live owner")
    return system


def require(holds: bool, promise: str) -> None:
    if not holds:
        raise BrokenPromise(promise)


def observe(system: SystemState, record: Record | None) -> SystemState:
    require(record is not None or system.record is None, "only purge deletes")
    token = 0 if record is None else record.token
    require(token >= system.highest or record == system.record, "tokens strictly grow per ownership")
    return system._replace(record=record, highest=max(system.highest, token))


def _ownership(record: Record) -> tuple[int, bytes, int, int]:
    return record.token, record.nonce, record.cycle, record.attempt


def end_grant(grant: Grant | None, elapsed: int) -> Grant | None:
    """End a grant after a forced forget: the operator is responsible, so the owner no longer counts as alive."""
    return None if grant is None else grant._replace(ends=elapsed)


def identity(system: SystemState) -> tuple[object, ...]:
    """Return what distinguishes this state from others. States that differ only in absolute time are the same."""
    now = system.now
    clients = tuple(
        (
            one.calls,
            one.nonce,
            one.asking,
            one.settling,
            _relative(one.grant, now, system.elapsed),
            one.sent and (one.sent[0], one.sent[1] - now),
        )
        for one in system.clients
    )
    owner = system.owner and (system.owner[0] - now, system.owner[1])
    rest = (
        system.faults,
        system.interventions,
        system.steady,
        owner,
        system.highest - now,
        max(system.answers_until - now, 0),
    )
    record = system.record
    if record is None:
        return clients, rest
    times = tuple(
        None if at is None else at - now
        for at in (record.token, record.cycle, record.lease_until, record.retry_at, record.valid_until)
    )
    facts = (record.state, record.nonce, record.attempt, record.after_crash, record.ask_first, record.released)
    return clients, rest, times, facts, record.final, record.fingerprint, record.digest, record.max_attempts


def _relative(grant: Grant | None, now: int, elapsed: int) -> tuple[object, ...] | None:
    if grant is None:
        return None
    return grant.token - now, grant.nonce, None if grant.ends is None else max(grant.ends - elapsed, 0)
