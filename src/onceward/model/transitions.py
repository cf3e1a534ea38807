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

from .record import (
    NOBODY,
    READER,
    AfterCrash,
    ClaimRequest,
    Complete,
    Fail,
    Park,
    Record,
    Release,
    Renewal,
    Resolution,
    Resolve,
    State,
    Verdict,
)

KEEP_UNFINISHED = 30 * 24 * 3600 * 1_000_000
"""An unfinished attempt that nobody repeats for 30 days is given up: long beyond any sender's retry span."""

CLOCK_MARGIN = 3600 * 1_000_000
"""Purge spares tokens younger than an hour: the store's clock may be set back by that much and tokens still grow."""

Step = tuple[Record, Verdict]


class Row(StrEnum):
    """In which row of the table a record stands."""

    NONE = "none"
    NEWER = "written by a newer Onceward"
    FREE = "FREE"
    DONE_OVER = "COMPLETED, over"
    REFUSED_OVER = "FAILED final, over"
    FAILED_OVER = "FAILED retryable, past keep_unfinished"
    LIVE = "PENDING, live"
    LAPSED = "PENDING, lapsed"
    HANDED_BACK = "PENDING, handed back unverified"
    FAILED = "FAILED retryable"
    REFUSED = "FAILED final"
    DONE = "COMPLETED"
    PARKED = "PARKED"


def row_of(record: Record | None, now: int) -> Row:
    """The table's row for this record at this time. A missing lease means held, never free."""
    if record is None:
        return Row.NONE
    if record.min_reader > READER:
        return Row.NEWER
    state = record.state
    over = record.valid_until is not None and now >= record.valid_until
    if state is State.COMPLETED:
        return Row.DONE_OVER if over else Row.DONE
    if state is State.PENDING:
        if record.released:
            return Row.HANDED_BACK
        return Row.LIVE if record.lease_until is None or now < record.lease_until else Row.LAPSED
    if state is State.FAILED:
        if record.final:
            return Row.REFUSED_OVER if over else Row.REFUSED
        return Row.FAILED_OVER if over else Row.FAILED
    return Row.PARKED if state is State.PARKED else Row.FREE


def next_token(record: Record | None, now: int) -> int:
    """Strictly growing per key, and above every token that a purge has forgotten."""
    return now if record is None else max(record.token + 1, now)


# ── cells of the column `claim` ─────────────────────────────────────────────────────────────────────────────────


def acquire_afresh(record: Record | None, request: ClaimRequest, now: int) -> Step:
    """A new cycle: nothing of the key's earlier life counts any more but its token."""
    token = next_token(record, now)
    return Record(
        id=request.id,
        scope=request.scope,
        key=request.key,
        state=State.PENDING,
        token=token,
        nonce=request.nonce,
        cycle=token,
        attempt=1,
        created_at=now,
        claimed_at=now,
        updated_at=now,
        renewed_at=now,
        lease_until=None if request.lease is None else now + request.lease,
        after_crash=request.after_crash,
        max_attempts=request.max_attempts,
        fingerprint=request.fingerprint,
        arguments=request.arguments,
        owner=request.owner,
        note=request.note,
    ), Verdict.ACQUIRED


def acquire_again(record: Record, request: ClaimRequest, now: int, after_crash: AfterCrash, *, ask_first: bool) -> Step:
    """One more attempt in the same cycle; what was noted about the work survives."""
    return replace(
        record,
        state=State.PENDING,
        token=next_token(record, now),
        nonce=request.nonce,
        attempt=record.attempt + 1,
        claimed_at=now,
        updated_at=now,
        renewed_at=now,
        lease_until=None if request.lease is None else now + request.lease,
        after_crash=after_crash,
        max_attempts=request.max_attempts,
        ask_first=ask_first,
        released=False,
        fingerprint=record.fingerprint or request.fingerprint,
        arguments=record.arguments or request.arguments,
        retry_at=None,
        valid_until=None,
        owner=request.owner,
        note={**record.note, **request.note},
    ), Verdict.ACQUIRED


def take_over(record: Record, request: ClaimRequest, now: int) -> Step:
    """The owner fell silent. The stricter choice of record and claimant decides what that means."""
    after_crash = max(record.after_crash, request.after_crash)
    if after_crash is AfterCrash.PARK:
        if record.released:  # its owner gave it back, so it has nothing left to say
            record = replace(record, nonce=NOBODY)
        return parked(record, now, "Lapsed", "the owner fell silent; nobody knows whether the effect happened")
    if after_crash is AfterCrash.VERIFY:
        return acquire_again(record, request, now, after_crash, ask_first=True)
    if used_up(record.attempt, request.max_attempts):
        return parked(
            record,
            now,
            "AttemptsUsedUp",
            f"the owner of attempt {record.attempt} fell silent, and it was the last one allowed",
        )
    return acquire_again(record, request, now, after_crash, ask_first=False)


def retry(record: Record, request: ClaimRequest, now: int) -> Step:
    """It failed before: run again once it is due and attempts are left."""
    waiting = record.retry_at is not None and now < record.retry_at
    if waiting or used_up(record.attempt, request.max_attempts):
        return record, Verdict.FAILED
    return acquire_again(record, request, now, request.after_crash, ask_first=False)


def replay(record: Record, _request: ClaimRequest, now: int) -> Step:
    """Done before. A sliding window moves, but is written only after an eighth has passed."""
    end = record.valid_until
    if record.slide and end is not None and now >= end - record.slide + record.slide // 8:
        record = replace(record, valid_until=now + record.slide, updated_at=now)
    return record, Verdict.REPLAY


def regrant(record: Record, request: ClaimRequest, now: int) -> Step:
    """The same call once more, because its reply was lost: the same answer, and never a second grant."""
    if record.state is State.COMPLETED:
        return record, Verdict.REPLAY
    if record.state is not State.PENDING or record.released:
        return record, Verdict.SETTLED
    if request.lease is not None and record.lease_until is not None and now >= record.lease_until:
        record = replace(record, lease_until=now + request.lease, renewed_at=now, updated_at=now)
    return record, Verdict.ACQUIRED


# ── cells of the owner's columns ────────────────────────────────────────────────────────────────────────────────


def renewed(record: Record, request: Renewal, now: int) -> Step:
    lease_until = None if record.lease_until is None else now + request.lease
    return replace(
        record, lease_until=lease_until, renewed_at=now, updated_at=now, note={**record.note, **request.note}
    ), Verdict.OK


def completed(record: Record, request: Complete | Resolve, now: int) -> Step:
    return replace(
        record,
        state=State.COMPLETED,
        updated_at=now,
        lease_until=None,
        ask_first=False,
        result=request.result,
        digest=request.digest,
        stored=request.stored,
        error_type="",
        error="",
        final=False,
        retry_at=None,
        valid_until=request.validity.end(now),
        slide=request.validity.slide,
        note={**record.note, **request.note},
    ), Verdict.OK


def failed(record: Record, request: Fail, now: int) -> Step:
    """FAILED, and final when no attempt is left. Under verify, a failure whose effect is unknown parks."""
    if record.after_crash is AfterCrash.VERIFY and not (request.known or request.final):
        return parked(record, now, request.error_type, request.error, request.note)
    final = request.final or used_up(record.attempt, request.max_attempts)
    return replace(
        record,
        state=State.FAILED,
        updated_at=now,
        lease_until=None,
        ask_first=False,
        error_type=request.error_type,
        error=request.error,
        final=final,
        retry_at=None if final else now + request.retry_in,
        valid_until=request.validity.end(now) if final else now + request.retry_in + KEEP_UNFINISHED,
        slide=0,
        note={**record.note, **request.note},
    ), Verdict.OK


def parked(record: Record, now: int, error_type: str, error: str, note: dict[str, str] | None = None) -> Step:
    """Token and nonce stay, so that the late owner, if it lives, may still say how it ended."""
    return replace(
        record,
        state=State.PARKED,
        updated_at=now,
        lease_until=None,
        error_type=error_type,
        error=error,
        note={**record.note, **(note or {})},
    ), Verdict.PARKED


def park_own(record: Record, request: Park, now: int) -> Step:
    return parked(record, now, request.error_type, request.error, request.note)[0], Verdict.OK


def hand_back(record: Record, _request: Release, now: int) -> Step:
    """Not begun: the attempt does not count. What an earlier attempt did may still have to be asked for."""
    if record.ask_first:
        return replace(record, lease_until=now, attempt=record.attempt - 1, released=True, updated_at=now), Verdict.OK
    if record.attempt <= 1:
        return replace(freed(record, now), nonce=record.nonce, token=record.token, released=True), Verdict.OK
    return replace(
        record,
        state=State.FAILED,
        attempt=record.attempt - 1,
        updated_at=now,
        lease_until=None,
        released=True,
        final=False,
        retry_at=now,
        valid_until=now + KEEP_UNFINISHED,
    ), Verdict.OK


def same(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.OK


def same_if_released(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.OK if record.released else Verdict.LOST


def same_if_equal(record: Record, request: Complete, _now: int) -> Step:
    """Settling twice with the same content is fine; with other content somebody is mistaken."""
    return record, Verdict.OK if record.digest == request.digest else Verdict.CONFLICT


def same_if_equal_else_lost(record: Record, request: Complete, _now: int) -> Step:
    return record, Verdict.OK if record.digest == request.digest else Verdict.LOST


def lost(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.LOST


def running(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.RUNNING


def refused(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.FAILED


def waits(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.PARKED


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
    Row.FREE:            Cells(acquire_afresh, lost,    lost,                    lost,   lost,     same_if_released),
    Row.DONE_OVER:       Cells(acquire_afresh, lost,    same_if_equal_else_lost, lost,   lost,     lost),
    Row.REFUSED_OVER:    Cells(acquire_afresh, lost,    lost,                    same,   lost,     lost),
    Row.FAILED_OVER:     Cells(acquire_afresh, lost,    lost,                    same,   lost,     same_if_released),
    Row.LIVE:            Cells(running,        renewed, completed,               failed, park_own, hand_back),
    Row.LAPSED:          Cells(take_over,      renewed, completed,               failed, park_own, hand_back),
    Row.HANDED_BACK:     Cells(take_over,      lost,    lost,                    lost,   lost,     same),
    Row.FAILED:          Cells(retry,          lost,    lost,                    same,   lost,     same_if_released),
    Row.REFUSED:         Cells(refused,        lost,    lost,                    same,   lost,     lost),
    Row.DONE:            Cells(replay,         lost,    same_if_equal,           lost,   lost,     lost),
    Row.PARKED:          Cells(waits,          lost,    completed,               lost,   same,     lost),
}
# fmt: on

STARTS_AFRESH = frozenset({Row.FREE, Row.DONE_OVER, Row.REFUSED_OVER, Row.FAILED_OVER})
"""Rows in which the key's earlier life is over, so that its payload no longer matters."""


def claim(record: Record | None, request: ClaimRequest, now: int) -> Step:
    """May this caller own the key?"""
    if record is None:
        return acquire_afresh(None, request, now)
    row = row_of(record, now)
    if row is Row.NEWER:
        return record, Verdict.SKEW
    if record.nonce == request.nonce:
        return regrant(record, request, now)
    if row not in STARTS_AFRESH and differs(record.fingerprint, request.fingerprint):
        return record, Verdict.MISMATCH
    return TABLE[row].claim(record, request, now)


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
    if row is Row.NEWER:
        return record, Verdict.SKEW
    if isinstance(request, Resolve):
        return resolve(record, request, now)
    if record is None or record.token != request.token or record.nonce != request.nonce:
        return record, Verdict.LOST
    cells = TABLE[row]
    if isinstance(request, Complete):
        return cells.complete(record, request, now)
    if isinstance(request, Fail):
        return cells.fail(record, request, now)
    if isinstance(request, Park):
        return cells.park(record, request, now)
    return cells.release(record, request, now)


def resolve(record: Record | None, request: Resolve, now: int) -> tuple[Record | None, Verdict]:
    """Somebody knows how a parked attempt ended. Compare-and-set on the token seen; the late owner is cut off."""
    if record is None or record.state is not State.PARKED or record.token != request.token_seen:
        return record, Verdict.LOST
    cut_off = replace(record, token=next_token(record, now), nonce=NOBODY, ask_first=False)
    if request.resolution is Resolution.APPLIED:
        return completed(cut_off, request, now)
    abandoned = request.resolution is Resolution.ABANDON
    attempt = record.attempt
    if not abandoned and used_up(attempt, record.max_attempts):
        attempt = record.max_attempts - 1  # whoever says "not applied" wants it run: one attempt must be left
    return replace(
        cut_off,
        state=State.FAILED,
        attempt=attempt,
        updated_at=now,
        final=abandoned,
        retry_at=None if abandoned else now,
        valid_until=request.validity.end(now) if abandoned else now + KEEP_UNFINISHED,
        note={**record.note, **request.note},
    ), Verdict.OK


def forget(record: Record | None, now: int, *, force: bool = False) -> tuple[Record | None, Verdict]:
    """Back to FREE. A live owner is spared unless forced; only its token survives, so that no zombie passes."""
    row = row_of(record, now)
    if record is None or row is Row.FREE:
        return record, Verdict.OK
    if row is Row.NEWER:
        return record, Verdict.SKEW
    if row is Row.LIVE and not force:
        return record, Verdict.REFUSED
    return freed(record, now), Verdict.OK


def purgeable(record: Record, now: int) -> bool:
    """May the record be deleted? Only what answers for nothing any more, and never a young token."""
    if record.token >= now - CLOCK_MARGIN:
        return False
    row = row_of(record, now)
    if row in STARTS_AFRESH:
        return True
    abandoned = (
        row is Row.LAPSED
        and record.after_crash is AfterCrash.RERUN
        and not used_up(record.attempt, record.max_attempts)
    )
    return abandoned and record.lease_until is not None and now >= record.lease_until + KEEP_UNFINISHED


def freed(record: Record, now: int) -> Record:
    """The key without its work."""
    return Record(
        id=record.id,
        scope=record.scope,
        key=record.key,
        state=State.FREE,
        token=next_token(record, now),
        cycle=record.cycle,
        created_at=now,
        updated_at=now,
    )


def used_up(attempt: int, max_attempts: int) -> bool:
    """0 means that attempts are not limited."""
    return max_attempts > 0 and attempt >= max_attempts


def differs(stored: bytes, given: bytes) -> bool:
    """Only fingerprints of the same encoder version (their first byte) can be compared."""
    return bool(stored and given) and stored[0] == given[0] and stored != given
