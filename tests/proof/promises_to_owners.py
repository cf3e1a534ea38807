"""The promises about owners, operators and maintenance, written once for the search and for the proof."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onceward.protocol.record import NO_OWNER, READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import Complete, Fail, Park, Release, Renewal, Resolution, Resolve, Verdict

from .facts import alike, end_of, is_after_its_window, same_time, used_up
from .logic import Promise, all_of, any_of, given, implies, negate
from .promises_to_callers import of_any
from .system import SystemState

# ── the owner's verbs ───────────────────────────────────────────────────────────────────────────────────────────


def of_owner(system: SystemState, request: Any, after: Record | None, verdict: Verdict) -> Iterator[Promise]:
    """renew, complete, fail, park, release."""
    before = system.record
    yield from of_any(system, after, verdict)
    if before is None:
        yield "a replaced owner changes nothing", after is None and verdict is Verdict.LOST
    if before is None or after is None:
        return
    readable = before.min_reader <= READER
    owner = all_of(before.token == request.token, before.nonce == request.nonce)
    yield from given(
        all_of(readable, negate(owner)),
        [("a replaced owner changes nothing", all_of(verdict is Verdict.LOST, alike(before, after)))],
    )
    yield from given(all_of(readable, owner), by_owner(system, before, request, after, verdict))


def by_owner(system: SystemState, before: Record, request: Any, after: Record, verdict: Verdict) -> Iterator[Promise]:
    yield (
        "an owner keeps token, nonce and cycle",
        all_of(
            after.token == before.token,
            after.nonce == before.nonce,
            after.cycle == before.cycle,
        ),
    )
    if before.state is RecordState.PENDING:
        yield from given(negate(before.released), ends(system, before, request, after, verdict))
        yield from given(before.released, has_ended(system, before, request, after, verdict))
    elif before.state is RecordState.PARKED and isinstance(request, Complete):
        yield "a late owner may still report its outcome", verdict is Verdict.OK
        yield from done(system, before, request, after)
    else:
        yield from has_ended(system, before, request, after, verdict)


def has_ended(system: SystemState, before: Record, request: Any, after: Record, verdict: Verdict) -> Iterator[Promise]:
    """An owner that has settled may only repeat the same settlement, because the reply may have been lost."""
    yield "an owner that has settled changes nothing more", after is before
    said: Any = False
    if isinstance(request, Complete) and before.state is RecordState.COMPLETED:
        said = before.digest == request.digest
        over = is_after_its_window(before, system.now)
        yield "another result is a conflict inside the window", any_of(said, over, verdict is Verdict.CONFLICT)
        yield "another result comes too late after the window", any_of(said, negate(over), verdict is Verdict.LOST)
    elif isinstance(request, Fail):
        said = before.state is RecordState.FAILED
    elif isinstance(request, Park):
        said = before.state is RecordState.PARKED
    elif isinstance(request, Release) and before.state in (RecordState.FREE, RecordState.FAILED, RecordState.PENDING):
        said = before.released
    yield "settling twice with the same content is fine", implies(said, verdict is Verdict.OK)
    yield (
        "an owner that has settled cannot settle differently",
        any_of(said, verdict in (Verdict.LOST, Verdict.CONFLICT)),
    )


def ends(system: SystemState, before: Record, request: Any, after: Record, verdict: Verdict) -> Iterator[Promise]:
    """The request ends an ownership that has not ended yet, however late."""
    parks: Any = False
    if isinstance(request, Fail):
        doubtful = all_of(before.after_crash is AfterCrash.VERIFY, negate(any_of(request.known, request.final)))
        parks = all_of(verdict is Verdict.PARKED, doubtful)
        yield "under verify a failure of unknown effect is parked", implies(doubtful, parks)
    yield "an owner that was not replaced may still settle", any_of(verdict is Verdict.OK, parks)
    if isinstance(request, Fail):
        yield (
            "a failure is kept as such",
            after.state is (RecordState.PARKED if verdict is Verdict.PARKED else RecordState.FAILED),
        )
        if after.state is RecordState.FAILED:
            yield from gave_up(system, before, request, after)
    elif isinstance(request, Complete):
        yield from done(system, before, request, after)
    elif isinstance(request, Park):
        yield "parking parks", after.state is RecordState.PARKED
    elif isinstance(request, Renewal):
        lease = None if before.lease_until is None else system.now + request.lease
        yield (
            "renewing keeps it running",
            all_of(after.state is RecordState.PENDING, negate(after.released), same_time(after.lease_until, lease)),
        )
        yield "renewing does not skip the verification", any_of(negate(before.ask_first), after.ask_first)
    else:
        yield from released_by_owner(system, before, after)
    if not isinstance(request, Release):
        yield "attempts fall by release only", after.attempt == before.attempt


def done(system: SystemState, before: Record, request: Complete | Resolve, after: Record) -> Iterator[Promise]:
    yield "a completed result is kept", all_of(after.state is RecordState.COMPLETED, after.digest == request.digest)
    yield (
        "a completed result is kept for the declared window",
        all_of(
            same_time(after.valid_until, end_of(request.validity, system.now)), after.slide == request.validity.slide
        ),
    )
    yield "completing counts no attempt", after.attempt == before.attempt


def gave_up(system: SystemState, before: Record, request: Fail, after: Record) -> Iterator[Promise]:
    final = any_of(request.final, used_up(before.attempt, request.max_attempts))
    yield (
        "a failure is final when it says so or attempts are used up",
        any_of(all_of(final, after.final), negate(any_of(final, after.final))),
    )
    yield (
        "a retryable failure is due as it said",
        any_of(final, same_time(after.retry_at, system.now + request.retry_in)),
    )
    yield (
        "a final failure is kept for its window",
        implies(final, same_time(after.valid_until, end_of(request.validity, system.now))),
    )
    if after.retry_at is not None and after.valid_until is not None:
        yield "a failure is kept beyond its due time", any_of(final, after.valid_until > after.retry_at)


def released_by_owner(system: SystemState, before: Record, after: Record) -> Iterator[Promise]:
    """The owner sent `release`: it did not begin the effect."""
    yield "a released attempt does not count", after.attempt == before.attempt - 1
    asked = all_of(after.state is RecordState.PENDING, after.released, after.ask_first)
    yield "release leaves the verification to the next owner", implies(before.ask_first, asked)
    alone = all_of(before.attempt <= 1, before.token == before.cycle)
    first = all_of(negate(before.ask_first), alone)
    yield "a released first attempt frees the key", implies(first, after.state is RecordState.FREE)
    later = all_of(negate(before.ask_first), negate(alone))
    due = all_of(after.state is RecordState.FAILED, negate(after.final), same_time(after.retry_at, system.now))
    yield "a released later attempt is due immediately", implies(later, due)


# ── operators and maintenance ───────────────────────────────────────────────────────────────────────────────────


def of_resolve(system: SystemState, request: Resolve, after: Record | None, verdict: Verdict) -> Iterator[Promise]:
    before = system.record
    yield from of_any(system, after, verdict)
    if before is None:
        yield (
            "resolve applies only to the parked record that the operator saw",
            after is None and verdict is Verdict.LOST,
        )
    if before is None or after is None:
        return
    readable = before.min_reader <= READER
    seen = all_of(before.state is RecordState.PARKED, before.token == request.token_seen)
    yield from given(
        all_of(readable, negate(seen)),
        [
            (
                "resolve applies only to the parked record that the operator saw",
                all_of(verdict is Verdict.LOST, alike(before, after)),
            )
        ],
    )
    yield from given(all_of(readable, seen), resolved(system, before, request, after, verdict))


def resolved(
    system: SystemState, before: Record, request: Resolve, after: Record, verdict: Verdict
) -> Iterator[Promise]:
    yield "an operator can resolve a parked record", verdict is Verdict.OK
    yield "resolving cuts the late owner off", all_of(after.token > system.highest, after.nonce == NO_OWNER)
    yield "resolving stays in the cycle", after.cycle == before.cycle
    if request.resolution is Resolution.APPLIED:
        yield from done(system, before, request, after)
        return
    yield "a record resolved as not applied or abandoned is a failure", after.state is RecordState.FAILED
    if request.resolution is Resolution.ABANDON:
        yield "an abandoned record is final", after.final
        yield (
            "a final failure is kept for its window",
            same_time(after.valid_until, end_of(request.validity, system.now)),
        )
        return
    yield (
        "a record resolved as not applied is due now",
        all_of(negate(after.final), same_time(after.retry_at, system.now)),
    )
    yield "a record resolved as not applied has an attempt left", negate(used_up(after.attempt, before.max_attempts))


def of_forget(system: SystemState, force: Any, after: Record | None, verdict: Verdict) -> Iterator[Promise]:
    before = system.record
    yield from of_any(system, after, verdict)
    if before is None:
        yield "forgetting a missing record creates none", after is None
    if before is None or after is None:
        return
    readable = before.min_reader <= READER
    live: Any = before.state is RecordState.PENDING
    if live:
        unlapsed = before.lease_until is None or system.now < before.lease_until
        live = all_of(negate(before.released), unlapsed)
    spared = all_of(live, negate(force))
    yield from given(all_of(readable, spared), [("forget spares a live owner", verdict is Verdict.REFUSED)])
    yield from given(
        all_of(readable, negate(spared)),
        [
            ("forget frees the key", all_of(verdict is Verdict.OK, after.state is RecordState.FREE)),
            (
                "forget cuts every owner off",
                any_of(before.state is RecordState.FREE, all_of(after.token > system.highest, after.nonce == NO_OWNER)),
            ),
        ],
    )


def of_purge(system: SystemState, gone: Any, margin: int, keep: int) -> Iterator[Promise]:
    """`gone` says whether the record may be deleted."""
    before, now = system.record, system.now
    if before is None:
        return
    given_up: Any = before.state is RecordState.PENDING and before.after_crash is AfterCrash.RERUN
    if given_up and before.lease_until is not None:
        given_up = all_of(
            negate(before.released),
            now >= before.lease_until + keep,
            negate(used_up(before.attempt, before.max_attempts)),
        )
    else:
        given_up = False
    over = all_of(before.min_reader <= READER, any_of(is_after_its_window(before, now), given_up))
    yield "purge keeps records that are still needed", implies(gone, over)
    yield "purge keeps recent tokens", implies(gone, before.token < now - margin)
    yield (
        "purge deletes expired records with old tokens",
        implies(
            all_of(before.min_reader <= READER, is_after_its_window(before, now), before.token < now - margin), gone
        ),
    )
