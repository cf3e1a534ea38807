"""The promises about claims, written once for the search and for the proof.

Each promise says how a claim may change a record, from the point of view of the caller, of the current owner and of the
caller whose result is stored. No promise uses the state table.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceward.protocol.record import NO_OWNER, READER, AfterCrash, Record, RecordState
from onceward.protocol.requests import ClaimRequest, Verdict

from .facts import alike, is_after_its_window, same_ownership, same_time, still_answers, unlike, used_up
from .logic import Promise, all_of, any_of, given, implies, negate
from .system import SystemState

CHANGING = frozenset({Verdict.ACQUIRED, Verdict.OK, Verdict.REPLAY, Verdict.PARKED})


def of_any(system: SystemState, after: Record | None, verdict: Verdict) -> Iterator[Promise]:
    """Yield the promises of every verb."""
    before = system.record
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
        "records of a newer version, and no others, are left unchanged",
        any_of(all_of(newer, skew), negate(any_of(newer, skew))),
    )
    yield "the token never falls", after.token >= before.token
    changed_hands = all_of(negate(after.nonce == before.nonce), negate(after.nonce == NO_OWNER))
    yield "a new owner has a new token", implies(changed_hands, after.token > system.highest)


# ── claim ───────────────────────────────────────────────────────────────────────────────────────────────────────


def of_claim(system: SystemState, request: ClaimRequest, after: Record | None, verdict: Verdict) -> Iterator[Promise]:
    before = system.record
    yield from of_any(system, after, verdict)
    if after is None:
        yield "a claim leaves a record", False
        return
    if before is None:
        yield from granted(system, request, after, verdict)
        yield from new_cycle(after, verdict)
        return
    readable = before.min_reader <= READER
    own = before.nonce == request.nonce
    yield from given(all_of(readable, own), repeated(system, before, after, verdict))
    yield from given(all_of(readable, negate(own)), first_asked(system, before, request, after, verdict))


def repeated(system: SystemState, before: Record, after: Record, verdict: Verdict) -> Iterator[Promise]:
    """The same claim arrives again: its reply was lost, or the network delivered the request twice."""
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
    system: SystemState, before: Record, request: ClaimRequest, after: Record, verdict: Verdict
) -> Iterator[Promise]:
    over = is_after_its_window(before, system.now)
    other = unlike(before.fingerprint, request.fingerprint)
    yield from granted(system, request, after, verdict)
    yield from given(over, new_cycle(after, verdict))
    yield from given(
        all_of(negate(over), other), [("another payload neither runs nor replays", verdict is Verdict.MISMATCH)]
    )
    yield from given(
        all_of(negate(over), negate(other)), ANSWERS[before.state](system, before, request, after, verdict)
    )


def new_cycle(after: Record, verdict: Verdict) -> Iterator[Promise]:
    yield "a record that is missing or after its window can be claimed", verdict is Verdict.ACQUIRED
    yield "a new cycle counts from attempt 1", after.attempt == 1
    yield "a new cycle is named by its first token", all_of(after.cycle == after.token, negate(after.ask_first))


def granted(system: SystemState, request: ClaimRequest, after: Record, verdict: Verdict) -> Iterator[Promise]:
    """Yield the promises of every claim that is granted, whatever the record was before."""
    if verdict is not Verdict.ACQUIRED:
        return
    yield (
        "the caller that acquires is the owner",
        all_of(after.state is RecordState.PENDING, after.nonce == request.nonce, negate(after.released)),
    )
    yield "tokens strictly grow", after.token > system.highest
    yield "no token is below the store's time", after.token >= system.now
    lease = None if request.lease is None else system.now + request.lease
    yield "the lease is the one that was asked for", same_time(after.lease_until, lease)
    yield "the stricter choice for a crash is kept", after.after_crash >= request.after_crash


def again(before: Record, after: Record) -> Iterator[Promise]:
    yield "attempts count on claim", after.attempt == before.attempt + 1
    yield "a takeover stays in its cycle", after.cycle == before.cycle


def pending(
    system: SystemState, before: Record, request: ClaimRequest, after: Record, verdict: Verdict
) -> Iterator[Promise]:
    running = verdict is Verdict.RUNNING
    if before.lease_until is None:
        yield "a record without a lease is owned, never free", any_of(before.released, running)
        live = negate(before.released)
    else:
        live = all_of(negate(before.released), system.now < before.lease_until)
        yield "a live lease is never taken over", implies(live, running)
    yield from given(negate(live), lapsed(system, before, request, after, verdict))


def lapsed(
    system: SystemState, before: Record, request: ClaimRequest, after: Record, verdict: Verdict
) -> Iterator[Promise]:
    strictest = max(before.after_crash, request.after_crash)
    parked = verdict is Verdict.PARKED and after.state is RecordState.PARKED
    if strictest is AfterCrash.PARK:
        yield "an expired lease under park never runs again by itself", parked
    elif strictest is AfterCrash.VERIFY:
        yield "an expired lease under verify is verified first", all_of(verdict is Verdict.ACQUIRED, after.ask_first)
        yield from again(before, after)
    else:
        spent = used_up(before.attempt, request.max_attempts)
        yield "no more attempts than allowed", implies(spent, parked)
        yield from given(
            negate(spent),
            [("an owner whose lease expired is replaced", verdict is Verdict.ACQUIRED), *again(before, after)],
        )
    if after.state is RecordState.PARKED:
        kept = all_of(after.token == before.token, any_of(before.released, after.nonce == before.nonce))
        yield "a late owner may still report its outcome", kept
        yield (
            "parking changes neither attempt nor cycle",
            all_of(after.attempt == before.attempt, after.cycle == before.cycle),
        )


def failed(
    system: SystemState, before: Record, request: ClaimRequest, after: Record, verdict: Verdict
) -> Iterator[Promise]:
    answers = verdict is Verdict.FAILED
    yield "a final failure is kept for its window", implies(before.final, answers)
    early = before.retry_at is not None and system.now < before.retry_at
    yield "a failure is not repeated before it is due", implies(early, answers)
    spent = used_up(before.attempt, request.max_attempts)
    yield "no more attempts than allowed", implies(spent, answers)
    yield from given(
        negate(any_of(before.final, early, spent)),
        [("a failure that is due runs again", verdict is Verdict.ACQUIRED), *again(before, after)],
    )


def completed(
    system: SystemState, before: Record, request: ClaimRequest, after: Record, verdict: Verdict
) -> Iterator[Promise]:
    yield "a completed result is replayed", verdict is Verdict.REPLAY
    yield "no completed result is replaced inside its window", still_answers(before, after)
    if after.valid_until is not None:
        moved = after.valid_until >= system.now + before.slide - before.slide // 8
        yield "a sliding window moves with each replay", implies(before.slide > 0, moved)


def parked(
    system: SystemState, before: Record, request: ClaimRequest, after: Record, verdict: Verdict
) -> Iterator[Promise]:
    yield "a parked record never runs by itself", all_of(verdict is Verdict.PARKED, alike(before, after))


def free(
    system: SystemState, before: Record, request: ClaimRequest, after: Record, verdict: Verdict
) -> Iterator[Promise]:
    yield from ()  # a FREE record is after its window: `new_cycle` has all promises


ANSWERS = {
    RecordState.PENDING: pending,
    RecordState.FAILED: failed,
    RecordState.COMPLETED: completed,
    RecordState.PARKED: parked,
    RecordState.FREE: free,
}
