"""The state table: what each request does to a record in each state. Every store implements it.

Two rules:

1. A record changes only through `claim`, `renew`, `settle` and `forget` below, and only `purge` deletes it. Each is a
   pure function of the record, the request and the store's time. A store only has to apply them atomically per key.
2. Owner verbs compare token, nonce and state. Time never decides whether they succeed: a late owner that was not
   replaced may still settle, because refusing it would only cause a second effect.

How it works: `row_of` returns the row of the table that a record is in at a given time. `TABLE` has one entry per row,
except NONE and NEWER, and one column per verb of claimants and owners. A cell is a small function that returns the new
record and the verdict. If a cell returns the same record object, nothing changed and the store writes nothing.

A claim checks in this order: newer layout, same nonce (a repeated request), window expired, fingerprint, state.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec.structs import replace

from .cells import (
    COMPLETED,
    KEEP_UNFINISHED,
    PENDING,
    Step,
    acquire_new_cycle,
    answer_failed,
    answer_lost,
    answer_ok,
    answer_parked,
    answer_running,
    attempts_used_up,
    complete_record,
    fail_record,
    free_record,
    next_token,
    ok_if_released,
    ok_if_same_result,
    ok_if_same_result_else_lost,
    park_by_owner,
    release_claim,
    renew_lease,
    repeat_answer,
    replay,
    retry_if_due,
    take_over,
)
from .record import NO_OWNER, READER, AfterCrash, CompletedRecord, Record, RecordState
from .requests import ClaimRequest, Complete, ExpectedRecord, Fail, Park, Release, Renewal, Resolution, Resolve, Verdict

CLOCK_MARGIN = 3600 * 1_000_000
"""Purge keeps tokens younger than an hour: if the store's clock is set back by up to that, tokens still grow."""


class Row(StrEnum):
    """The rows of the table: a record's state, and what its times say."""

    NONE = "none"
    NEWER = "written by a newer Onceward"
    FREE = "FREE"
    COMPLETED_EXPIRED = "COMPLETED, expired"
    FAILED_FINAL_EXPIRED = "FAILED final, expired"
    FAILED_RETRYABLE_EXPIRED = "FAILED retryable, expired"
    PENDING_LIVE = "PENDING, live"
    PENDING_LAPSED = "PENDING, lapsed"
    RELEASED_UNVERIFIED = "PENDING, released before verification"
    FAILED_RETRYABLE = "FAILED retryable"
    FAILED_FINAL = "FAILED final"
    COMPLETED = "COMPLETED"
    PARKED = "PARKED"


LIVE, NEWER = Row.PENDING_LIVE, Row.NEWER  # module constants: every call uses them, and an enum lookup is slower


def row_of(record: Record | None, now: int) -> Row:
    """Return the row of this record at this time. A PENDING record without a lease is live: it never expires."""
    if record is None:
        return Row.NONE
    if record.min_reader > READER:
        return Row.NEWER
    state = record.state
    if state is PENDING:
        if record.released:
            return Row.RELEASED_UNVERIFIED
        return LIVE if record.lease_until is None or now < record.lease_until else Row.PENDING_LAPSED
    expired = record.valid_until is not None and now >= record.valid_until
    if state is COMPLETED:
        return Row.COMPLETED_EXPIRED if expired else Row.COMPLETED
    if state is RecordState.FAILED:
        if record.final:
            return Row.FAILED_FINAL_EXPIRED if expired else Row.FAILED_FINAL
        return Row.FAILED_RETRYABLE_EXPIRED if expired else Row.FAILED_RETRYABLE
    return Row.PARKED if state is RecordState.PARKED else Row.FREE


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────

Cell = Callable[[Any, Any, int], Step]


class Cells(NamedTuple):
    """One row of the table; the columns are verbs. `resolve`, `forget` and `purge` need more than the row (below)."""

    claim: Cell
    renew: Cell
    complete: Cell
    fail: Cell
    park: Cell
    release: Cell


# fmt: off
TABLE: dict[Row, Cells] = {
    #   claim              renew        complete                     fail         park           release
    Row.FREE: Cells(
        acquire_new_cycle, answer_lost, answer_lost,                 answer_lost, answer_lost,   ok_if_released),
    Row.COMPLETED_EXPIRED: Cells(
        acquire_new_cycle, answer_lost, ok_if_same_result_else_lost, answer_lost, answer_lost,   answer_lost),
    Row.FAILED_FINAL_EXPIRED: Cells(
        acquire_new_cycle, answer_lost, answer_lost,                 answer_ok,   answer_lost,   answer_lost),
    Row.FAILED_RETRYABLE_EXPIRED: Cells(
        acquire_new_cycle, answer_lost, answer_lost,                 answer_ok,   answer_lost,   ok_if_released),
    Row.PENDING_LIVE: Cells(
        answer_running,    renew_lease, complete_record,             fail_record, park_by_owner, release_claim),
    Row.PENDING_LAPSED: Cells(
        take_over,         renew_lease, complete_record,             fail_record, park_by_owner, release_claim),
    Row.RELEASED_UNVERIFIED: Cells(
        take_over,         answer_lost, answer_lost,                 answer_lost, answer_lost,   answer_ok),
    Row.FAILED_RETRYABLE: Cells(
        retry_if_due,      answer_lost, answer_lost,                 answer_ok,   answer_lost,   ok_if_released),
    Row.FAILED_FINAL: Cells(
        answer_failed,     answer_lost, answer_lost,                 answer_ok,   answer_lost,   answer_lost),
    Row.COMPLETED: Cells(
        replay,            answer_lost, ok_if_same_result,           answer_lost, answer_lost,   answer_lost),
    Row.PARKED: Cells(
        answer_parked,     answer_lost, complete_record,             answer_lost, answer_ok,     answer_lost),
}
# fmt: on

COLUMNS: dict[type, int] = {
    kind: Cells._fields.index(kind.__name__.lower()) for kind in (Complete, Fail, Park, Release)
}
"""Index of each settlement's column in a row."""

STARTS_NEW_CYCLE = frozenset({Row.FREE, Row.COMPLETED_EXPIRED, Row.FAILED_FINAL_EXPIRED, Row.FAILED_RETRYABLE_EXPIRED})
"""Rows in which a claim starts a new cycle, so the fingerprint of the previous one is not compared."""

RESOLVABLE = frozenset({Row.PARKED, Row.PENDING_LIVE, Row.PENDING_LAPSED, Row.FAILED_RETRYABLE, Row.FAILED_FINAL})
"""Rows in which an operator may resolve the last attempt."""


def claim(record: Record | None, request: ClaimRequest, now: int) -> Step:
    """Decide whether this caller becomes the owner of the key."""
    if record is None:
        return acquire_new_cycle(None, request, now)
    row = row_of(record, now)
    if row is Row.NEWER:
        return record, Verdict.SKEW
    if record.nonce == request.nonce:
        return repeat_answer(record, request, now)
    if row not in STARTS_NEW_CYCLE and differs(record.fingerprint, request.fingerprint):
        return record, Verdict.MISMATCH
    return TABLE[row].claim(record, request, now)


def apply(
    record: Record | None, request: ClaimRequest | Renewal | Complete | Fail | Park | Release | Resolve, now: int
) -> tuple[Record | None, Verdict]:
    """Apply the verb of the request."""
    return VERBS[type(request)](record, request, now)


def replays(record: CompletedRecord, fingerprint: bytes, now: int) -> bool:
    """Return whether a claim with this fingerprint would replay the stored result without a write."""
    if record.state is not COMPLETED or record.min_reader > READER:
        return False
    end, stored = record.valid_until, record.fingerprint
    in_window = end is None or now < end - record.slide + record.slide // 8
    return in_window and (stored == fingerprint or not differs(stored, fingerprint))


def renew(record: Record | None, request: Renewal, now: int) -> tuple[Record | None, Verdict]:
    """Extend the owner's lease."""
    row = row_of(record, now)
    if row is Row.NEWER:
        return record, Verdict.SKEW
    if record is None or record.token != request.token or record.nonce != request.nonce:
        return record, Verdict.LOST
    return TABLE[row].renew(record, request, now)


def settle(
    record: Record | None, request: Complete | Fail | Park | Release | Resolve, now: int
) -> tuple[Record | None, Verdict]:
    """End an ownership, or resolve a record."""
    row = row_of(record, now)
    if row is NEWER:
        return record, Verdict.SKEW
    column = COLUMNS.get(type(request))
    if column is None:
        return resolve(record, request, now)  # type: ignore[arg-type]  # only Resolve has no column
    if record is None or record.token != request.token or record.nonce != request.nonce:  # type: ignore[union-attr]  # the same
        return record, Verdict.LOST
    step: Step = TABLE[row][column](record, request, now)
    return step


def resolve(record: Record | None, request: Resolve, now: int) -> tuple[Record | None, Verdict]:
    """Record how an attempt ended, as stated by an operator, and revoke its ownership.

    The request applies only if the record still has the token and the state that the operator saw.
    """
    row = row_of(record, now)
    if record is None or row not in RESOLVABLE:
        return record, Verdict.LOST
    if (record.token, record.state) != (request.token_seen, request.state_seen):
        return record, Verdict.LOST
    if row is Row.PENDING_LIVE and not request.force:
        return record, Verdict.REFUSED
    revoked = replace(
        record, token=next_token(record, now), nonce=NO_OWNER, lease_until=None, ask_first=False, released=False
    )
    if record.state is RecordState.PENDING:
        revoked = replace(revoked, error_type="Released", error="ownership revoked: an operator resolved the attempt")
    if request.resolution is Resolution.APPLIED:
        return complete_record(revoked, request, now)
    abandoned = request.resolution is Resolution.ABANDON
    attempt = record.attempt
    if not abandoned and attempts_used_up(attempt, record.max_attempts):
        attempt = record.max_attempts - 1  # "not applied" means that it should run again: one attempt must be left
    return replace(
        revoked,
        state=RecordState.FAILED,
        attempt=attempt,
        updated_at=now,
        final=abandoned,
        retry_at=None if abandoned else now,
        valid_until=request.validity.end(now) if abandoned else now + KEEP_UNFINISHED,
        note={**record.note, **request.note},
    ), Verdict.OK


def forget(
    record: Record | None, now: int, *, force: bool = False, seen: ExpectedRecord | None = None
) -> tuple[Record | None, Verdict]:
    """Reset the record to FREE. A live owner is refused unless `force` is set.

    The record gets a new token and no nonce, so writes of the previous owner are rejected. With `seen`, a record that
    has changed since then is left alone: an operator can only forget what they saw.
    """
    row = row_of(record, now)
    if record is None or row is Row.FREE:
        return record, Verdict.OK
    if row is Row.NEWER:
        return record, Verdict.SKEW
    if seen is not None and (record.token, record.state) != (seen.token, seen.state):
        return record, Verdict.LOST
    if row is Row.PENDING_LIVE and not force:
        return record, Verdict.REFUSED
    return free_record(record, now), Verdict.OK


def purgeable(record: Record, now: int) -> bool:
    """Return whether the record may be deleted: it is no longer needed for any answer, and its token is old enough."""
    if record.token >= now - CLOCK_MARGIN:
        return False
    row = row_of(record, now)
    if row in STARTS_NEW_CYCLE:
        return True
    abandoned = (
        row is Row.PENDING_LAPSED
        and record.after_crash is AfterCrash.RERUN
        and not attempts_used_up(record.attempt, record.max_attempts)
    )
    return abandoned and record.lease_until is not None and now >= record.lease_until + KEEP_UNFINISHED


VERBS: dict[type, Callable[[Any, Any, int], tuple[Any, Verdict]]] = {
    ClaimRequest: claim,
    Renewal: renew,
    **dict.fromkeys((Complete, Fail, Park, Release, Resolve), settle),
}
"""The function for each type of request."""


def differs(stored: bytes, given: bytes) -> bool:
    """Return whether the payloads differ. Only fingerprints of the same encoder version (first byte) are comparable."""
    return bool(stored and given) and stored[0] == given[0] and stored != given
