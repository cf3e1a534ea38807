"""What is true of every world that can be reached: assumed before each step and shown after it.

It is inductive: it says enough about the record, the clocks and any two grants that each step keeps it, for any number
of clients and any length of history. The search checks it in every state that it reaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from onceward.protocol.record import NO_OWNER, AfterCrash, Record, RecordState
from onceward.protocol.transitions import CLOCK_MARGIN

from .logic import Promise, all_of, any_of, given, implies, negate
from .world import Grant, World


def invariant(world: World) -> Iterator[Promise]:
    yield from clocks(world)
    if world.record is not None:
        yield from record_is_well_formed(world.record)
    for grant in world.grants:
        yield "only a grant makes an owner", implies(still_owned(world.record, grant), grant.issued)
        yield from given(grant.issued, token_is_known(world, grant))
        yield from given(all_of(grant.issued, negate(world.jumped)), belief_is_true(world, grant))
    for one, other in combinations(world.grants, 2):
        yield from given(all_of(one.issued, other.issued), only_one(world, one, other))


def clocks(world: World) -> Iterator[Promise]:
    yield (
        "the clock is set back by no more than the margin",
        all_of(world.now >= world.peak - CLOCK_MARGIN, world.now <= world.peak),
    )
    if world.record is None:
        yield "a token that was forgotten is older than the margin", world.highest < world.peak - CLOCK_MARGIN
    else:
        yield "the record holds the largest token", world.record.token == world.highest
        yield "a cycle begins with one of its tokens", world.record.cycle <= world.record.token


def record_is_well_formed(record: Record) -> Iterator[Promise]:
    """Which fields a state has."""
    state = record.state
    lease, due, until = (at is not None for at in (record.lease_until, record.retry_at, record.valid_until))
    yield "only PENDING has a lease", state is RecordState.PENDING or not lease
    yield (
        "only a retryable FAILED has a time to retry",
        any_of(
            all_of(state is RecordState.FAILED, negate(record.final), due and until),
            all_of(any_of(state is not RecordState.FAILED, record.final), not due),
        ),
    )
    yield "only what is settled has a window", state in (RecordState.COMPLETED, RecordState.FAILED) or not until
    yield "only FAILED is final", any_of(state is RecordState.FAILED, negate(record.final))
    if state is RecordState.PENDING:
        yield (
            "only what lapsed under verify is asked for",
            implies(record.ask_first, record.after_crash is AfterCrash.VERIFY),
        )
        yield (
            "only what is asked for is handed back as PENDING",
            implies(record.released, all_of(record.ask_first, lease)),
        )
        yield (
            "what is asked for had an attempt before",
            implies(record.ask_first, any_of(record.released, record.attempt >= 2)),
        )
    elif state is not RecordState.PARKED:
        yield "what is known is not asked for", negate(record.ask_first)
    if state in (RecordState.PARKED, RecordState.COMPLETED):
        yield "who handed back cannot complete", implies(record.released, record.nonce == NO_OWNER)
    if state is RecordState.FAILED:
        yield (
            "who handed back did not fail for good",
            implies(all_of(record.released, record.final), record.nonce == NO_OWNER),
        )
    if state is RecordState.FREE:
        yield "FREE has no work", all_of(record.attempt == 0, record.after_crash is AfterCrash.RERUN)
    else:
        yield "attempts are counted", record.attempt >= (0 if state is RecordState.FAILED else 1)


def token_is_known(world: World, grant: Grant) -> Iterator[Promise]:
    yield "no grant is above the largest token", all_of(grant.token <= world.highest, negate(grant.nonce == NO_OWNER))
    record = world.record
    if record is not None:
        holder = any_of(record.nonce == grant.nonce, record.nonce == NO_OWNER)
        yield "the token belongs to one nonce", implies(record.token == grant.token, holder)


def belief_is_true(world: World, grant: Grant) -> Iterator[Promise]:
    """As long as the store's clock does not run ahead of real time."""
    owned = still_owned(world.record, grant)
    yield "who believes to be alive is the owner", implies(alive(world, grant), owned)
    yield "nobody counts on more than a lease from now", any_of(grant.unending, grant.ends <= world.real + grant.lease)
    record = world.record
    if record is not None and record.lease_until is not None:
        covered = all_of(negate(grant.unending), grant.ends + world.now - world.real <= record.lease_until)
        yield (
            "no owner believes in a longer lease than the store's",
            implies(all_of(owned, negate(grant.ended)), covered),
        )


def only_one(world: World, one: Grant, other: Grant) -> Iterator[Promise]:
    yield "no two grants have one token", implies(one.token == other.token, one.nonce == other.nonce)
    twice = all_of(one.token == other.token, one.nonce == other.nonce)
    both = all_of(alive(world, one), alive(world, other), negate(world.jumped))
    yield "at most one live owner", implies(both, twice)


def alive(world: World, grant: Grant) -> Any:
    """By its own clock."""
    return all_of(grant.heard, negate(grant.ended), any_of(grant.unending, world.real < grant.ends))


def still_owned(record: Record | None, grant: Grant) -> Any:
    if record is None or record.state is not RecordState.PENDING:
        return False
    return all_of(record.token == grant.token, record.nonce == grant.nonce, negate(record.released))
