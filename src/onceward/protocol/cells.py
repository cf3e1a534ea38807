"""The cells of the state table: what each verb does to a record in each row. See `transitions` for the table itself.

A cell is a pure function of the record, the request and the store's time. It returns the new record and the verdict.
A cell that changes nothing returns the same record object.
"""

from __future__ import annotations

from msgspec.structs import replace

from .record import NO_OWNER, AfterCrash, Record, RecordState
from .requests import ClaimRequest, Complete, Fail, Park, Release, Renewal, Resolve, Verdict

KEEP_UNFINISHED = 30 * 24 * 3600 * 1_000_000
"""An unfinished attempt that is not retried for 30 days is given up: far longer than any sender keeps retrying."""

Step = tuple[Record, Verdict]

PENDING, COMPLETED = (
    RecordState.PENDING,
    RecordState.COMPLETED,
)  # module constants: every call uses them, and an enum lookup is slower
ACQUIRED, REPLAY, OK = Verdict.ACQUIRED, Verdict.REPLAY, Verdict.OK


def next_token(record: Record | None, now: int) -> int:
    """Return a token above every earlier one of this key. Purge deletes only old tokens, which are below `now`."""
    return now if record is None else max(record.token + 1, now)


def free_record(record: Record, now: int) -> Record:
    """Return the record in state FREE: only key, cycle and a new token remain."""
    return Record(
        id=record.id,
        scope=record.scope,
        key=record.key,
        state=RecordState.FREE,
        token=next_token(record, now),
        cycle=record.cycle,
        created_at=now,
        updated_at=now,
    )


def attempts_used_up(attempt: int, max_attempts: int) -> bool:
    """Return whether no attempt is left. `max_attempts` 0 means no limit."""
    return max_attempts > 0 and attempt >= max_attempts


# ── cells of the column `claim` ─────────────────────────────────────────────────────────────────────────────────


def acquire_new_cycle(record: Record | None, request: ClaimRequest, now: int) -> Step:
    """Start a new cycle. Only the token of the previous cycle matters."""
    token = now if record is None or record.token < now else record.token + 1
    return Record(  # positional arguments: twice as fast, and every first call creates one
        request.id,
        request.scope,
        request.key,
        PENDING,
        token,
        request.nonce,
        token,  # cycle
        1,  # attempt
        now,  # created_at
        now,  # claimed_at
        now,  # updated_at
        now,  # renewed_at
        None if request.lease is None else now + request.lease,
        request.after_crash,
        request.max_attempts,
        request.fingerprint,
        request.arguments,
        request.owner,
        request.note,
    ), ACQUIRED


def acquire_next_attempt(
    record: Record, request: ClaimRequest, now: int, after_crash: AfterCrash, *, ask_first: bool
) -> Step:
    """Start another attempt in the same cycle. The notes on the record are kept."""
    return replace(
        record,
        state=RecordState.PENDING,
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
    """Take over from an owner that stopped renewing its lease, or that released an attempt which must be verified.

    `after_crash` decides how; the stricter of the record's and the claimant's setting applies.
    """
    after_crash = max(record.after_crash, request.after_crash)
    if after_crash is AfterCrash.PARK:
        if record.released:  # its owner released it, so it cannot settle any more
            record = replace(record, nonce=NO_OWNER)
        return park_record(
            record, now, "Lapsed", "the owner stopped renewing its lease; it is unknown whether the effect happened"
        )
    if after_crash is AfterCrash.VERIFY:
        return acquire_next_attempt(record, request, now, after_crash, ask_first=True)
    if attempts_used_up(record.attempt, request.max_attempts):
        return park_record(
            record,
            now,
            "AttemptsUsedUp",
            f"the owner of attempt {record.attempt} stopped renewing its lease, and no attempt is left",
        )
    return acquire_next_attempt(record, request, now, after_crash, ask_first=False)


def retry_if_due(record: Record, request: ClaimRequest, now: int) -> Step:
    """Start the next attempt of failed work if its retry is due and attempts are left."""
    too_early = record.retry_at is not None and now < record.retry_at
    if too_early or attempts_used_up(record.attempt, request.max_attempts):
        return record, Verdict.FAILED
    return acquire_next_attempt(record, request, now, request.after_crash, ask_first=False)


def replay(record: Record, _request: ClaimRequest, now: int) -> Step:
    """Answer with the stored result. A sliding window is extended, but only after an eighth of it has passed."""
    end = record.valid_until
    if record.slide and end is not None and now >= end - record.slide + record.slide // 8:
        record = replace(record, valid_until=now + record.slide, updated_at=now)
    return record, REPLAY


def repeat_answer(record: Record, request: ClaimRequest, now: int) -> Step:
    """Answer a claim that was sent again because its reply was lost: the same answer, never a second grant."""
    if record.state is RecordState.COMPLETED:
        return record, Verdict.REPLAY
    if record.state is not RecordState.PENDING or record.released:
        return record, Verdict.SETTLED
    if request.lease is not None and record.lease_until is not None and now >= record.lease_until:
        record = replace(record, lease_until=now + request.lease, renewed_at=now, updated_at=now)
    return record, Verdict.ACQUIRED


# ── cells of the owner's columns ────────────────────────────────────────────────────────────────────────────────


def renew_lease(record: Record, request: Renewal, now: int) -> Step:
    lease_until = None if record.lease_until is None else now + request.lease
    return replace(
        record, lease_until=lease_until, renewed_at=now, updated_at=now, note={**record.note, **request.note}
    ), Verdict.OK


def complete_record(record: Record, request: Complete | Resolve, now: int) -> Step:
    validity = request.validity
    return Record(  # positional for speed; at most 30 arguments: with more, Python builds a list first
        record.id,
        record.scope,
        record.key,
        COMPLETED,
        record.token,
        record.nonce,
        record.cycle,
        record.attempt,
        record.created_at,
        record.claimed_at,
        now,  # updated_at
        record.renewed_at,
        None,  # lease_until
        record.after_crash,
        record.max_attempts,
        record.fingerprint,
        record.arguments,
        record.owner,
        {**record.note, **request.note} if request.note else record.note,
        False,  # noqa: FBT003 (ask_first)
        record.released,
        request.result,
        request.digest,
        request.stored,
        "",  # error_type
        "",  # error
        False,  # noqa: FBT003 (final)
        None,  # retry_at
        validity.until if validity.lasting is None else now + validity.lasting,  # valid_until
        validity.slide,
    ), OK


def fail_record(record: Record, request: Fail, now: int) -> Step:
    """Record a failure, final if no attempt is left. With verify, park it if the effect may have happened."""
    if record.after_crash is AfterCrash.VERIFY and not (request.known or request.final):
        return park_record(record, now, request.error_type, request.error, request.note)
    final = request.final or attempts_used_up(record.attempt, request.max_attempts)
    return replace(
        record,
        state=RecordState.FAILED,
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


def park_record(record: Record, now: int, error_type: str, error: str, note: dict[str, str] | None = None) -> Step:
    """Park the record. Token and nonce stay, so that a late owner that is still alive can settle it."""
    return replace(
        record,
        state=RecordState.PARKED,
        updated_at=now,
        lease_until=None,
        error_type=error_type,
        error=error,
        note={**record.note, **(note or {})},
    ), Verdict.PARKED


def park_by_owner(record: Record, request: Park, now: int) -> Step:
    return park_record(record, now, request.error_type, request.error, request.note)[0], Verdict.OK


def release_claim(record: Record, _request: Release, now: int) -> Step:
    """Undo a claim whose work has not started: the attempt does not count.

    If an earlier attempt still has to be verified (`ask_first`), the next owner verifies it.
    """
    if record.ask_first:
        return replace(record, lease_until=now, attempt=record.attempt - 1, released=True, updated_at=now), Verdict.OK
    if (
        record.attempt <= 1 and record.token == record.cycle
    ):  # the first attempt of its cycle: its derived keys were never used
        return replace(free_record(record, now), nonce=record.nonce, token=record.token, released=True), Verdict.OK
    return replace(
        record,
        state=RecordState.FAILED,
        attempt=record.attempt - 1,
        updated_at=now,
        lease_until=None,
        released=True,
        final=False,
        retry_at=now,
        valid_until=now + KEEP_UNFINISHED,
    ), Verdict.OK


def answer_ok(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.OK


def ok_if_released(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.OK if record.released else Verdict.LOST


def ok_if_same_result(record: Record, request: Complete, _now: int) -> Step:
    """Accept a repeated completion with the same result; a different result is a conflict."""
    return record, Verdict.OK if record.digest == request.digest else Verdict.CONFLICT


def ok_if_same_result_else_lost(record: Record, request: Complete, _now: int) -> Step:
    return record, Verdict.OK if record.digest == request.digest else Verdict.LOST


def answer_lost(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.LOST


def answer_running(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.RUNNING


def answer_failed(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.FAILED


def answer_parked(record: Record, _request: object, _now: int) -> Step:
    return record, Verdict.PARKED
