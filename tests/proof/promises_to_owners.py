"""What owners, operators and upkeep are promised, written once for the search and for the proof."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onceward.protocol.record import NO_OWNER, READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import Complete, Fail, Park, Release, Renewal, Resolution, Resolve, Verdict

from .facts import alike, answers_no_more, end_of, same_time, used_up
from .logic import Promise, all_of, any_of, given, implies, negate
from .promises_to_callers import of_any
from .world import World

# ── the owner's verbs ───────────────────────────────────────────────────────────────────────────────────────────


def of_owner(world: World, request: Any, after: Record | None, verdict: Verdict) -> Iterator[Promise]:
    """renew, complete, fail, park, release."""
    before = world.record
    yield from of_any(world, after, verdict)
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
    yield from given(all_of(readable, owner), by_owner(world, before, request, after, verdict))


def by_owner(world: World, before: Record, request: Any, after: Record, verdict: Verdict) -> Iterator[Promise]:
    yield (
        "an owner keeps token, nonce and cycle",
        all_of(
            after.token == before.token,
            after.nonce == before.nonce,
            after.cycle == before.cycle,
        ),
    )
    if before.state is RecordState.PENDING:
        yield from given(negate(before.released), ends(world, before, request, after, verdict))
        yield from given(before.released, has_ended(world, before, request, after, verdict))
    elif before.state is RecordState.PARKED and isinstance(request, Complete):
        yield "the late owner may still say how it ended", verdict is Verdict.OK
        yield from done(world, before, request, after)
    else:
        yield from has_ended(world, before, request, after, verdict)


def has_ended(world: World, before: Record, request: Any, after: Record, verdict: Verdict) -> Iterator[Promise]:
    """Who has settled may say the same again, because the reply may have been lost, and nothing else."""
    yield "who has settled changes nothing more", after is before
    said: Any = False
    if isinstance(request, Complete) and before.state is RecordState.COMPLETED:
        said = before.digest == request.digest
        over = answers_no_more(before, world.now)
        yield "another result is a conflict inside the window", any_of(said, over, verdict is Verdict.CONFLICT)
        yield "another result comes too late after the window", any_of(said, negate(over), verdict is Verdict.LOST)
    elif isinstance(request, Fail):
        said = before.state is RecordState.FAILED
    elif isinstance(request, Park):
        said = before.state is RecordState.PARKED
    elif isinstance(request, Release) and before.state in (RecordState.FREE, RecordState.FAILED, RecordState.PENDING):
        said = before.released
    yield "settling twice with the same content is fine", implies(said, verdict is Verdict.OK)
    yield "who has settled has nothing else to say", any_of(said, verdict in (Verdict.LOST, Verdict.CONFLICT))


def ends(world: World, before: Record, request: Any, after: Record, verdict: Verdict) -> Iterator[Promise]:
    """An ownership that nobody ended yet, however late."""
    parks: Any = False
    if isinstance(request, Fail):
        doubtful = all_of(before.after_crash is AfterCrash.VERIFY, negate(any_of(request.known, request.final)))
        parks = all_of(verdict is Verdict.PARKED, doubtful)
        yield "under verify a failure of unknown effect is parked", implies(doubtful, parks)
    yield "an owner whom nobody replaced may still settle", any_of(verdict is Verdict.OK, parks)
    if isinstance(request, Fail):
        yield (
            "a failure is kept as such",
            after.state is (RecordState.PARKED if verdict is Verdict.PARKED else RecordState.FAILED),
        )
        if after.state is RecordState.FAILED:
            yield from gave_up(world, before, request, after)
    elif isinstance(request, Complete):
        yield from done(world, before, request, after)
    elif isinstance(request, Park):
        yield "parking parks", after.state is RecordState.PARKED
    elif isinstance(request, Renewal):
        lease = None if before.lease_until is None else world.now + request.lease
        yield (
            "renewing keeps it running",
            all_of(after.state is RecordState.PENDING, negate(after.released), same_time(after.lease_until, lease)),
        )
        yield "renewing does not answer for verify", any_of(negate(before.ask_first), after.ask_first)
    else:
        yield from handed_back(world, before, after)
    if not isinstance(request, Release):
        yield "attempts fall by release only", after.attempt == before.attempt


def done(world: World, before: Record, request: Complete | Resolve, after: Record) -> Iterator[Promise]:
    yield "a completed result is kept", all_of(after.state is RecordState.COMPLETED, after.digest == request.digest)
    yield (
        "it answers for the window that was declared",
        all_of(
            same_time(after.valid_until, end_of(request.validity, world.now)), after.slide == request.validity.slide
        ),
    )
    yield "completing counts no attempt", after.attempt == before.attempt


def gave_up(world: World, before: Record, request: Fail, after: Record) -> Iterator[Promise]:
    final = any_of(request.final, used_up(before.attempt, request.max_attempts))
    yield (
        "a failure is final when it says so or attempts are used up",
        any_of(all_of(final, after.final), negate(any_of(final, after.final))),
    )
    yield (
        "a retryable failure is due as it said",
        any_of(final, same_time(after.retry_at, world.now + request.retry_in)),
    )
    yield (
        "a final failure answers for its window",
        implies(final, same_time(after.valid_until, end_of(request.validity, world.now))),
    )
    if after.retry_at is not None and after.valid_until is not None:
        yield "a failure is kept beyond its due time", any_of(final, after.valid_until > after.retry_at)


def handed_back(world: World, before: Record, after: Record) -> Iterator[Promise]:
    """`release`: the effect was not begun."""
    yield "a released attempt does not count", after.attempt == before.attempt - 1
    asked = all_of(after.state is RecordState.PENDING, after.released, after.ask_first)
    yield "release leaves the question of verify to the next", implies(before.ask_first, asked)
    alone = all_of(before.attempt <= 1, before.token == before.cycle)
    first = all_of(negate(before.ask_first), alone)
    yield "a released first attempt frees the key", implies(first, after.state is RecordState.FREE)
    later = all_of(negate(before.ask_first), negate(alone))
    due = all_of(after.state is RecordState.FAILED, negate(after.final), same_time(after.retry_at, world.now))
    yield "a released later attempt is due at once", implies(later, due)


# ── operators and upkeep ────────────────────────────────────────────────────────────────────────────────────────


def of_resolve(world: World, request: Resolve, after: Record | None, verdict: Verdict) -> Iterator[Promise]:
    before = world.record
    yield from of_any(world, after, verdict)
    if before is None:
        yield "resolving holds only for what was seen parked", after is None and verdict is Verdict.LOST
    if before is None or after is None:
        return
    readable = before.min_reader <= READER
    seen = all_of(before.state is RecordState.PARKED, before.token == request.token_seen)
    yield from given(
        all_of(readable, negate(seen)),
        [("resolving holds only for what was seen parked", all_of(verdict is Verdict.LOST, alike(before, after)))],
    )
    yield from given(all_of(readable, seen), resolved(world, before, request, after, verdict))


def resolved(world: World, before: Record, request: Resolve, after: Record, verdict: Verdict) -> Iterator[Promise]:
    yield "who knows the outcome can say so", verdict is Verdict.OK
    yield "resolving cuts the late owner off", all_of(after.token > world.highest, after.nonce == NO_OWNER)
    yield "resolving stays in the cycle", after.cycle == before.cycle
    if request.resolution is Resolution.APPLIED:
        yield from done(world, before, request, after)
        return
    yield "what was not applied or is abandoned is a failure", after.state is RecordState.FAILED
    if request.resolution is Resolution.ABANDON:
        yield "what is abandoned is final", after.final
        yield (
            "a final failure answers for its window",
            same_time(after.valid_until, end_of(request.validity, world.now)),
        )
        return
    yield "what was not applied is due now", all_of(negate(after.final), same_time(after.retry_at, world.now))
    yield "what was not applied has an attempt left", negate(used_up(after.attempt, before.max_attempts))


def of_forget(world: World, force: Any, after: Record | None, verdict: Verdict) -> Iterator[Promise]:
    before = world.record
    yield from of_any(world, after, verdict)
    if before is None:
        yield "nothing comes of forgetting nothing", after is None
    if before is None or after is None:
        return
    readable = before.min_reader <= READER
    live: Any = before.state is RecordState.PENDING
    if live:
        unlapsed = before.lease_until is None or world.now < before.lease_until
        live = all_of(negate(before.released), unlapsed)
    spared = all_of(live, negate(force))
    yield from given(all_of(readable, spared), [("forget spares a live owner", verdict is Verdict.REFUSED)])
    yield from given(
        all_of(readable, negate(spared)),
        [
            ("forget frees the key", all_of(verdict is Verdict.OK, after.state is RecordState.FREE)),
            (
                "forget cuts every owner off",
                any_of(before.state is RecordState.FREE, all_of(after.token > world.highest, after.nonce == NO_OWNER)),
            ),
        ],
    )


def of_purge(world: World, gone: Any, margin: int, keep: int) -> Iterator[Promise]:
    """`gone` says whether the record may be deleted."""
    before, now = world.record, world.now
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
    over = all_of(before.min_reader <= READER, any_of(answers_no_more(before, now), given_up))
    yield "purge spares what still answers", implies(gone, over)
    yield "purge spares young tokens", implies(gone, before.token < now - margin)
    yield (
        "purge clears what is over and old",
        implies(all_of(before.min_reader <= READER, answers_no_more(before, now), before.token < now - margin), gone),
    )
