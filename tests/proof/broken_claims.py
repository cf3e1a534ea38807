"""Claims with one rule broken; everything else is the shipped table. See `mutants`."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from onceward.protocol import cells, transitions
from onceward.protocol.record import NO_OWNER, READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import ClaimRequest, Verdict

from .system import Rules, Step


def seeing(change: Callable[[Record, ClaimRequest, int], Record]) -> Rules:
    """Return rules whose claim sees a changed version of another owner's record."""

    def claim(record: Record | None, request: ClaimRequest, now: int) -> Step:
        if record is None or record.nonce == request.nonce:
            return transitions.claim(record, request, now)
        seen = change(record, request, now)
        after, verdict = transitions.claim(seen, request, now)
        return (record if after is seen else after), verdict

    return Rules(claim=claim)


def blind_take_over(record: Record, request: ClaimRequest, now: int) -> Record:
    return replace(record, lease_until=now) if record.state is RecordState.PENDING else record


def missing_lease_is_free(record: Record, request: ClaimRequest, now: int) -> Record:
    return (
        replace(record, lease_until=now)
        if record.state is RecordState.PENDING and record.lease_until is None
        else record
    )


def only_the_claimant_decides(record: Record, request: ClaimRequest, now: int) -> Record:
    return replace(record, after_crash=AfterCrash.RERUN)


def parked_is_free(record: Record, request: ClaimRequest, now: int) -> Record:
    if record.state is not RecordState.PARKED:
        return record
    return replace(record, state=RecordState.FAILED, retry_at=now, valid_until=now + cells.KEEP_UNFINISHED)


def window_forgotten_early(record: Record, request: ClaimRequest, now: int) -> Record:
    return replace(record, valid_until=now) if record.state is RecordState.COMPLETED else record


def due_immediately(record: Record, request: ClaimRequest, now: int) -> Record:
    return replace(record, retry_at=now) if record.state is RecordState.FAILED else record


def any_payload(record: Record, request: ClaimRequest, now: int) -> Record:
    return replace(record, fingerprint=b"")


def attempts_never_used_up(record: Record | None, request: ClaimRequest, now: int) -> Step:
    return transitions.claim(record, replace(request, max_attempts=0), now)


def attempts_not_counted(record: Record | None, request: ClaimRequest, now: int) -> Step:
    after, verdict = transitions.claim(record, request, now)
    if record is not None and verdict is Verdict.ACQUIRED and after.cycle == record.cycle:
        after = replace(after, attempt=record.attempt)
    return after, verdict


def fingerprint_before_window(record: Record | None, request: ClaimRequest, now: int) -> Step:
    readable = record is not None and record.min_reader <= READER and record.nonce != request.nonce
    if record is not None and readable and transitions.differs(record.fingerprint, request.fingerprint):
        return record, Verdict.MISMATCH
    return transitions.claim(record, request, now)


def own_nonce_not_recognised(record: Record | None, request: ClaimRequest, now: int) -> Step:
    if record is None or record.nonce != request.nonce:
        return transitions.claim(record, request, now)
    strange = replace(record, nonce=NO_OWNER)
    after, verdict = transitions.claim(strange, request, now)
    return (record if after is strange else after), verdict


def regrant_grants_again(record: Record | None, request: ClaimRequest, now: int) -> Step:
    ours = record is not None and record.nonce == request.nonce and record.min_reader <= READER
    if record is not None and ours and record.state is RecordState.PENDING:
        return cells.acquire_next_attempt(record, request, now, record.after_crash, ask_first=record.ask_first)
    return transitions.claim(record, request, now)


def regrant_forgets_to_ask(record: Record | None, request: ClaimRequest, now: int) -> Step:
    after, verdict = transitions.claim(record, request, now)
    if record is not None and record.nonce == request.nonce and verdict is Verdict.ACQUIRED:
        after = replace(after, ask_first=False)
    return after, verdict


def settled_nonce_acquires(record: Record | None, request: ClaimRequest, now: int) -> Step:
    if record is None or record.nonce != request.nonce or record.state is not RecordState.FAILED:
        return transitions.claim(record, request, now)
    strange = replace(record, nonce=NO_OWNER)
    after, verdict = transitions.claim(strange, request, now)
    return (record if after is strange else after), verdict


def sliding_never_written(record: Record | None, request: ClaimRequest, now: int) -> Step:
    after, verdict = transitions.claim(record, request, now)
    return (record if verdict is Verdict.REPLAY else after), verdict


def token_from_the_clock_alone(record: Record | None, request: ClaimRequest, now: int) -> Step:
    after, verdict = transitions.claim(record, request, now)
    return (replace(after, token=now) if verdict is Verdict.ACQUIRED and after is not record else after), verdict


def cycle_per_attempt(record: Record | None, request: ClaimRequest, now: int) -> Step:
    after, verdict = transitions.claim(record, request, now)
    return (replace(after, cycle=after.token) if verdict is Verdict.ACQUIRED else after), verdict


def parking_drops_the_owner(record: Record | None, request: ClaimRequest, now: int) -> Step:
    after, verdict = transitions.claim(record, request, now)
    return (replace(after, nonce=NO_OWNER) if verdict is Verdict.PARKED and after is not record else after), verdict
