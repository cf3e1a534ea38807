"""Renewals, settlements and upkeep with one rule broken; everything else is the shipped table. See `mutants`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from onceward.protocol import transitions
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Complete, Fail, Release, Renewal, Resolution, Resolve, Verdict
from onceward.protocol.transitions import Row, row_of

from .system import Rules, Step


def renew_without_token(record: Record | None, request: Renewal, now: int) -> Step:
    if record is not None and record.state is RecordState.PENDING:
        request = replace(request, token=record.token, nonce=record.nonce)
    return transitions.renew(record, request, now)


def renew_gives_a_lease_to_what_has_none(record: Record | None, request: Renewal, now: int) -> Step:
    after, verdict = transitions.renew(record, request, now)
    return (replace(after, lease_until=now + request.lease) if verdict is Verdict.OK and after else after), verdict


def renew_revives_what_is_settled(record: Record | None, request: Renewal, now: int) -> Step:
    if record is None or record.state is not RecordState.FAILED:
        return transitions.renew(record, request, now)
    revived = replace(record, state=RecordState.PENDING, lease_until=now, retry_at=None, valid_until=None)
    after, verdict = transitions.renew(revived, request, now)
    return (record if after is revived else after), verdict


def settling(change: Callable[[Record, Any, int], Any]) -> Rules:
    """Return rules whose settle receives a changed request."""

    def settle(record: Record | None, request: Any, now: int) -> Step:
        return transitions.settle(record, request if record is None else change(record, request, now), now)

    return Rules(settle=settle)


def complete_without_token(record: Record, request: Any, now: int) -> Any:
    own = isinstance(request, Complete)
    return replace(request, token=record.token, nonce=record.nonce) if own else request


def token_not_compared(record: Record, request: Any, now: int) -> Any:
    return request if isinstance(request, Resolve) else replace(request, token=record.token)


def nonce_not_compared(record: Record, request: Any, now: int) -> Any:
    return request if isinstance(request, Resolve) else replace(request, nonce=record.nonce)


def every_failure_is_known(record: Record, request: Any, now: int) -> Any:
    return replace(request, known=True) if isinstance(request, Fail) else request


def resolved_whatever_was_seen(record: Record, request: Any, now: int) -> Any:
    return replace(request, token_seen=record.token) if isinstance(request, Resolve) else request


def late_owner_refused(record: Record | None, request: Any, now: int) -> Step:
    """Time decides instead of ownership."""
    if isinstance(request, Complete) and row_of(record, now) is Row.PENDING_LAPSED:
        return record, Verdict.LOST
    return transitions.settle(record, request, now)


def completed_twice(record: Record | None, request: Any, now: int) -> Step:
    """The last result counts instead of the first."""
    if record is None or record.state is not RecordState.COMPLETED or not isinstance(request, Complete):
        return transitions.settle(record, request, now)
    undone = replace(record, state=RecordState.PENDING, valid_until=None)
    after, verdict = transitions.settle(undone, request, now)
    return (record if after is undone else after), verdict


def release_still_counts(record: Record | None, request: Any, now: int) -> Step:
    after, verdict = transitions.settle(record, request, now)
    if record is not None and after is not None and after is not record and isinstance(request, Release):
        after = replace(after, attempt=record.attempt)
    return after, verdict


def release_skips_the_verification(record: Record | None, request: Any, now: int) -> Step:
    if record is not None and isinstance(request, Release):
        after, verdict = transitions.settle(replace(record, ask_first=False), request, now)
        return (after if verdict is Verdict.OK and record.state is RecordState.PENDING else record), verdict
    return transitions.settle(record, request, now)


def release_begins_a_new_cycle(record: Record | None, request: Any, now: int) -> Step:
    """Treats attempt 1 as the first of its cycle, although an operator may have granted it again."""
    if record is None or not isinstance(request, Release):
        return transitions.settle(record, request, now)
    first = replace(record, cycle=record.token if record.attempt <= 1 else record.cycle)
    after, verdict = transitions.settle(first, request, now)
    return (record if after is first else after), verdict


def failure_deletes(record: Record | None, request: Any, now: int) -> Step:
    after, verdict = transitions.settle(record, request, now)
    return (None if after is not None and after.state is RecordState.FAILED else after), verdict


def resolving_spares_the_late_owner(record: Record | None, request: Any, now: int) -> Step:
    after, verdict = transitions.settle(record, request, now)
    if record is not None and after is not None and isinstance(request, Resolve) and after is not record:
        after = replace(after, token=record.token, nonce=record.nonce)
    return after, verdict


def not_applied_counts_as_applied(record: Record | None, request: Any, now: int) -> Step:
    if isinstance(request, Resolve) and request.resolution is Resolution.NOT_APPLIED:
        request = replace(request, resolution=Resolution.APPLIED)
    return transitions.settle(record, request, now)


# ── forget, purge ───────────────────────────────────────────────────────────────────────────────────────────────


def forget_resets_token(record: Record | None, now: int, *, force: bool = False) -> Step:
    after, verdict = transitions.forget(record, now, force=force)
    return (replace(after, token=0) if after is not None and after is not record else after), verdict


def forget_deletes(record: Record | None, now: int, *, force: bool = False) -> Step:
    after, verdict = transitions.forget(record, now, force=force)
    return (after if after is record else None), verdict


def forget_spares_no_owner(record: Record | None, now: int, *, force: bool = False) -> Step:
    """Returns the right answer, but frees the key of a live owner anyway."""
    return transitions.forget(record, now, force=True)[0], transitions.forget(record, now, force=force)[1]


def purge_of_young_tokens(record: Record, now: int) -> bool:
    """Resets tokens when the clock is set back, because the next claim takes its token from the clock."""
    return row_of(record, now) in transitions.STARTS_NEW_CYCLE or transitions.purgeable(record, now)


def purge_of_what_is_parked(record: Record, now: int) -> bool:
    old = record.token < now - transitions.CLOCK_MARGIN
    return (old and record.state is RecordState.PARKED) or transitions.purgeable(record, now)


def purge_inside_the_window(record: Record, now: int) -> bool:
    old = record.token < now - transitions.CLOCK_MARGIN
    return (old and record.state is RecordState.COMPLETED) or transitions.purgeable(record, now)
