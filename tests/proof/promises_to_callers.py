"""What a claim is promised, written once for the search and for the proof.

Each promise says what a claim may make of a record, from the point of view of the caller, of the owner whom it finds
there and of whoever paid for the result. None of them asks the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceward.protocol.record import NO_OWNER, READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import ClaimRequest, Verdict

from .facts import alike, answers_no_more, same_ownership, same_time, still_answers, unlike, used_up
from .logic import Promise, all_of, any_of, given, implies, negate
from .world import World

CHANGING = frozenset({Verdict.ACQUIRED, Verdict.OK, Verdict.REPLAY, Verdict.PARKED})


def of_any(world: World, after: Record | None, verdict: Verdict) -> Iterator[Promise]:
    """Whatever the verb was."""
    before = world.record
    if verdict not in CHANGING:
        yield "a refusal changes nothing", alike(before, after)
    if before is None:
        return
    if after is None:
        yield "only purge deletes", False
        return
    newer = before.min_reader > READER
    skew = verdict is Verdict.SKEW
    yield (
        "what a newer version wrote is left alone, and nothing else",
        any_of(all_of(newer, skew), negate(any_of(newer, skew))),
    )
    yield "the token never falls", after.token >= before.token
    changed_hands = all_of(negate(after.nonce == before.nonce), negate(after.nonce == NO_OWNER))
    yield "a new owner has a new token", implies(changed_hands, after.token > world.highest)


# ── claim ───────────────────────────────────────────────────────────────────────────────────────────────────────


def of_claim(world: World, request: ClaimRequest, after: Record | None, verdict: Verdict) -> Iterator[Promise]:
    before = world.record
    yield from of_any(world, after, verdict)
    if after is None:
        yield "a claim leaves a record", False
        return
    if before is None:
        yield from granted(world, request, after, verdict)
        yield from new_life(after, verdict)
        return
    readable = before.min_reader <= READER
    own = before.nonce == request.nonce
    yield from given(all_of(readable, own), repeated(world, before, after, verdict))
    yield from given(all_of(readable, negate(own)), first_asked(world, before, request, after, verdict))


def repeated(world: World, before: Record, after: Record, verdict: Verdict) -> Iterator[Promise]:
    """The reply was lost, or the network delivers the request again."""
    yield "one call, one grant", all_of(same_ownership(before, after), after.state is before.state)
    if before.state is RecordState.PENDING:
        acquired = verdict is Verdict.ACQUIRED
        yield "a lost reply is given again", any_of(before.released, acquired)
        yield "a settled nonce never acquires", implies(before.released, not acquired)
        if before.lease_until is not None and after.lease_until is not None:
            yield "a repeated claim shortens no lease", after.lease_until >= before.lease_until
    elif before.state is RecordState.COMPLETED:
        yield "a completed result is replayed", all_of(verdict is Verdict.REPLAY, alike(before, after))
    else:
        yield "a settled nonce never acquires", all_of(verdict is Verdict.SETTLED, alike(before, after))


def first_asked(
    world: World, before: Record, request: ClaimRequest, after: Record, verdict: Verdict
) -> Iterator[Promise]:
    over = answers_no_more(before, world.now)
    other = unlike(before.fingerprint, request.fingerprint)
    yield from granted(world, request, after, verdict)
    yield from given(over, new_life(after, verdict))
    yield from given(
        all_of(negate(over), other), [("another payload neither runs nor replays", verdict is Verdict.MISMATCH)]
    )
    yield from given(all_of(negate(over), negate(other)), ANSWERS[before.state](world, before, request, after, verdict))


def new_life(after: Record, verdict: Verdict) -> Iterator[Promise]:
    yield "what is over answers for nothing", verdict is Verdict.ACQUIRED
    yield "a new life counts from attempt 1", after.attempt == 1
    yield "a new life has a cycle of its own", all_of(after.cycle == after.token, negate(after.ask_first))


def granted(world: World, request: ClaimRequest, after: Record, verdict: Verdict) -> Iterator[Promise]:
    """Whatever was found: a claim that is granted."""
    if verdict is not Verdict.ACQUIRED:
        return
    yield (
        "whoever acquires is the owner",
        all_of(after.state is RecordState.PENDING, after.nonce == request.nonce, negate(after.released)),
    )
    yield "tokens strictly grow", after.token > world.highest
    yield "no token is below the store's time", after.token >= world.now
    lease = None if request.lease is None else world.now + request.lease
    yield "the lease is the one that was asked for", same_time(after.lease_until, lease)
    yield "the stricter choice for a crash is kept", after.after_crash >= request.after_crash


def again(before: Record, after: Record) -> Iterator[Promise]:
    yield "attempts count on claim", after.attempt == before.attempt + 1
    yield "a take-over stays in its cycle", after.cycle == before.cycle


def pending(world: World, before: Record, request: ClaimRequest, after: Record, verdict: Verdict) -> Iterator[Promise]:
    running = verdict is Verdict.RUNNING
    if before.lease_until is None:
        yield "a missing lease is held, never free", any_of(before.released, running)
        live = negate(before.released)
    else:
        live = all_of(negate(before.released), world.now < before.lease_until)
        yield "nobody takes over a live lease", implies(live, running)
    yield from given(negate(live), lapsed(world, before, request, after, verdict))


def lapsed(world: World, before: Record, request: ClaimRequest, after: Record, verdict: Verdict) -> Iterator[Promise]:
    strictest = max(before.after_crash, request.after_crash)
    parked = verdict is Verdict.PARKED and after.state is RecordState.PARKED
    if strictest is AfterCrash.PARK:
        yield "what lapsed under park never runs by itself", parked
    elif strictest is AfterCrash.VERIFY:
        yield "what lapsed under verify is asked for first", all_of(verdict is Verdict.ACQUIRED, after.ask_first)
        yield from again(before, after)
    else:
        spent = used_up(before.attempt, request.max_attempts)
        yield "no more attempts than allowed", implies(spent, parked)
        yield from given(
            negate(spent),
            [("a silent owner is replaced", verdict is Verdict.ACQUIRED), *again(before, after)],
        )
    if after.state is RecordState.PARKED:
        kept = all_of(after.token == before.token, any_of(before.released, after.nonce == before.nonce))
        yield "the late owner may still say how it ended", kept
        yield (
            "parking changes neither attempt nor cycle",
            all_of(after.attempt == before.attempt, after.cycle == before.cycle),
        )


def failed(world: World, before: Record, request: ClaimRequest, after: Record, verdict: Verdict) -> Iterator[Promise]:
    answers = verdict is Verdict.FAILED
    yield "a final failure answers for its window", implies(before.final, answers)
    early = before.retry_at is not None and world.now < before.retry_at
    yield "a failure is not repeated before it is due", implies(early, answers)
    spent = used_up(before.attempt, request.max_attempts)
    yield "no more attempts than allowed", implies(spent, answers)
    yield from given(
        negate(any_of(before.final, early, spent)),
        [("a failure that is due runs again", verdict is Verdict.ACQUIRED), *again(before, after)],
    )


def completed(
    world: World, before: Record, request: ClaimRequest, after: Record, verdict: Verdict
) -> Iterator[Promise]:
    yield "a completed result is replayed", verdict is Verdict.REPLAY
    yield "no completed result is replaced inside its window", still_answers(before, after)
    if after.valid_until is not None:
        moved = after.valid_until >= world.now + before.slide - before.slide // 8
        yield "a sliding window moves with each question", implies(before.slide > 0, moved)


def parked(world: World, before: Record, request: ClaimRequest, after: Record, verdict: Verdict) -> Iterator[Promise]:
    yield "what is parked never runs by itself", all_of(verdict is Verdict.PARKED, alike(before, after))


def free(world: World, before: Record, request: ClaimRequest, after: Record, verdict: Verdict) -> Iterator[Promise]:
    yield from ()  # answers for nothing: `new_life` has said it all


ANSWERS = {
    RecordState.PENDING: pending,
    RecordState.FAILED: failed,
    RecordState.COMPLETED: completed,
    RecordState.PARKED: parked,
    RecordState.FREE: free,
}
