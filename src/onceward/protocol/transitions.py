"""The state table: the heart of Onceward.

Two rules:

1. A record changes only through `claim`, `renew`, `settle` and `forget` below; each is a pure function of the
   record, the request and the store's time. A store's whole duty is to apply them atomically per key.
2. Owner verbs compare token, nonce and state, never time: a late owner whom nobody replaced may still settle,
   because refusing it would only cause a second effect.

How it works. `row_of` says in which row of the table a record stands right now. `TABLE` has one row each and one
column a verb; a cell is a small function that returns the record afterwards and the verdict. A cell that returns
the very same record object changed nothing, and a store then writes nothing.

A claim is judged in this order: newer layout, own nonce, window over, fingerprint, state.
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
"""Purge spares tokens younger than an hour: the store's clock may be set back by that much and tokens still grow."""


class Row(StrEnum):
    """In which row of the table a record stands."""

    NONE = "none"
    NEWER = "written by a newer Onceward"
    FREE = "FREE"
    COMPLETED_EXPIRED = "COMPLETED, over"
    FAILED_FINAL_EXPIRED = "FAILED final, over"
    FAILED_RETRYABLE_EXPIRED = "FAILED retryable, past keep_unfinished"
    PENDING_LIVE = "PENDING, live"
    PENDING_LAPSED = "PENDING, lapsed"
    RELEASED_UNVERIFIED = "PENDING, handed back unverified"
    FAILED_RETRYABLE = "FAILED retryable"
    FAILED_FINAL = "FAILED final"
    COMPLETED = "COMPLETED"
    PARKED = "PARKED"


LIVE, NEWER = Row.PENDING_LIVE, Row.NEWER  # on every call's way: looked up once


def row_of(record: Record | None, now: int) -> Row:
    """The table's row for this record at this time. A missing lease means held, never free."""
    if record is None:
        return Row.NONE
    if record.min_reader > READER:
        return Row.NEWER
    state = record.state
    if state is PENDING:
        if record.released:
            return Row.RELEASED_UNVERIFIED
        return LIVE if record.lease_until is None or now < record.lease_until else Row.PENDING_LAPSED
    over = record.valid_until is not None and now >= record.valid_until
    if state is COMPLETED:
        return Row.COMPLETED_EXPIRED if over else Row.COMPLETED
    if state is RecordState.FAILED:
        if record.final:
            return Row.FAILED_FINAL_EXPIRED if over else Row.FAILED_FINAL
        return Row.FAILED_RETRYABLE_EXPIRED if over else Row.FAILED_RETRYABLE
    return Row.PARKED if state is RecordState.PARKED else Row.FREE


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────

Cell = Callable[[Any, Any, int], Step]


class Cells(NamedTuple):
    """One row of the table; the columns are verbs. `forget` and `purge` follow from the row alone, see below."""

    claim: Cell
    renew: Cell
    complete: Cell
    fail: Cell
    park: Cell
    release: Cell


# fmt: off
TABLE: dict[Row, Cells] = {
    #                          claim           renew    complete                 fail    park      release
    Row.FREE:            Cells(acquire_new_cycle, answer_lost,    answer_lost,                    answer_lost,   answer_lost,     ok_if_released),
    Row.COMPLETED_EXPIRED:       Cells(acquire_new_cycle, answer_lost,    ok_if_same_result_else_lost, answer_lost,   answer_lost,     answer_lost),
    Row.FAILED_FINAL_EXPIRED:    Cells(acquire_new_cycle, answer_lost,    answer_lost,                    answer_ok,   answer_lost,     answer_lost),
    Row.FAILED_RETRYABLE_EXPIRED:     Cells(acquire_new_cycle, answer_lost,    answer_lost,                    answer_ok,   answer_lost,     ok_if_released),
    Row.PENDING_LIVE:            Cells(answer_running,        renew_lease, complete_record,               fail_record, park_by_owner, release_claim),
    Row.PENDING_LAPSED:          Cells(take_over,      renew_lease, complete_record,               fail_record, park_by_owner, release_claim),
    Row.RELEASED_UNVERIFIED:     Cells(take_over,      answer_lost,    answer_lost,                    answer_lost,   answer_lost,     answer_ok),
    Row.FAILED_RETRYABLE:          Cells(retry_if_due,          answer_lost,    answer_lost,                    answer_ok,   answer_lost,     ok_if_released),
    Row.FAILED_FINAL:         Cells(answer_failed,        answer_lost,    answer_lost,                    answer_ok,   answer_lost,     answer_lost),
    Row.COMPLETED:            Cells(replay,         answer_lost,    ok_if_same_result,           answer_lost,   answer_lost,     answer_lost),
    Row.PARKED:          Cells(answer_parked,          answer_lost,    complete_record,               answer_lost,   answer_ok,     answer_lost),
}
# fmt: on

COLUMNS: dict[type, int] = {
    kind: Cells._fields.index(kind.__name__.lower()) for kind in (Complete, Fail, Park, Release)
}
"""Where in its row a settlement finds its cell."""

STARTS_NEW_CYCLE = frozenset({Row.FREE, Row.COMPLETED_EXPIRED, Row.FAILED_FINAL_EXPIRED, Row.FAILED_RETRYABLE_EXPIRED})
"""Rows in which the key's earlier life is over, so that its payload no longer matters."""

RESOLVABLE = frozenset({Row.PARKED, Row.PENDING_LIVE, Row.PENDING_LAPSED, Row.FAILED_RETRYABLE, Row.FAILED_FINAL})
"""Rows in which somebody who knows may say how the last attempt ended."""


def claim(record: Record | None, request: ClaimRequest, now: int) -> Step:
    """May this caller own the key?"""
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
    """Whichever verb the request is for."""
    return VERBS[type(request)](record, request, now)


def replays(record: CompletedRecord, fingerprint: bytes, now: int) -> bool:
    """Whether a claim with this fingerprint would be answered with the stored result, and nothing be written."""
    if record.state is not COMPLETED or record.min_reader > READER:
        return False
    end, stored = record.valid_until, record.fingerprint
    in_window = end is None or now < end - record.slide + record.slide // 8
    return in_window and (stored == fingerprint or not differs(stored, fingerprint))


def renew(record: Record | None, request: Renewal, now: int) -> tuple[Record | None, Verdict]:
    """Extend the lease of its owner."""
    row = row_of(record, now)
    if row is Row.NEWER:
        return record, Verdict.SKEW
    if record is None or record.token != request.token or record.nonce != request.nonce:
        return record, Verdict.LOST
    return TABLE[row].renew(record, request, now)


def settle(
    record: Record | None, request: Complete | Fail | Park | Release | Resolve, now: int
) -> tuple[Record | None, Verdict]:
    """End an ownership, or resolve a parked record."""
    row = row_of(record, now)
    if row is NEWER:
        return record, Verdict.SKEW
    column = COLUMNS.get(type(request))
    if column is None:
        return resolve(record, request, now)  # type: ignore[arg-type]  # what has no column is a Resolve
    if record is None or record.token != request.token or record.nonce != request.nonce:  # type: ignore[union-attr]  # the same
        return record, Verdict.LOST
    step: Step = TABLE[row][column](record, request, now)
    return step


def resolve(record: Record | None, request: Resolve, now: int) -> tuple[Record | None, Verdict]:
    """Somebody knows how an attempt ended. Compare-and-set on what was seen; the owner is cut off."""
    row = row_of(record, now)
    if record is None or row not in RESOLVABLE:
        return record, Verdict.LOST
    if (record.token, record.state) != (request.token_seen, request.state_seen):
        return record, Verdict.LOST
    if row is Row.PENDING_LIVE and not request.force:
        return record, Verdict.REFUSED
    cut_off = replace(
        record, token=next_token(record, now), nonce=NO_OWNER, lease_until=None, ask_first=False, released=False
    )
    if record.state is RecordState.PENDING:
        cut_off = replace(cut_off, error_type="Released", error="its owner was cut off: somebody knew how it ended")
    if request.resolution is Resolution.APPLIED:
        return complete_record(cut_off, request, now)
    abandoned = request.resolution is Resolution.ABANDON
    attempt = record.attempt
    if not abandoned and attempts_used_up(attempt, record.max_attempts):
        attempt = record.max_attempts - 1  # whoever says "not applied" wants it run: one attempt must be left
    return replace(
        cut_off,
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
    """Back to FREE. A live owner is spared unless forced; only its token survives, so that no zombie passes.

    With `seen`, a record that has become another since then is left alone: nobody forgets what they did not see.
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
    """May the record be deleted? Only what answers for nothing any more, and never a young token."""
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
"""Which function answers a request."""


def differs(stored: bytes, given: bytes) -> bool:
    """Only fingerprints of the same encoder version (their first byte) can be compared."""
    return bool(stored and given) and stored[0] == given[0] and stored != given
