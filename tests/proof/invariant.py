"""Conditions that hold in every reachable state: assumed before each step and proved after it.

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
from .system import Grant, SystemState


def invariant(system: SystemState) -> Iterator[Promise]:
    yield from clocks(system)
    if system.record is not None:
        yield from record_is_well_formed(system.record)
    for grant in system.grants:
        yield "only a grant makes an owner", implies(still_owned(system.record, grant), grant.issued)
        yield from given(grant.issued, token_is_known(system, grant))
        yield from given(all_of(grant.issued, negate(system.jumped)), belief_is_true(system, grant))
    for one, other in combinations(system.grants, 2):
        yield from given(all_of(one.issued, other.issued), only_one(system, one, other))


def clocks(system: SystemState) -> Iterator[Promise]:
    yield (
        "the clock is set back by no more than the margin",
        all_of(system.now >= system.peak - CLOCK_MARGIN, system.now <= system.peak),
    )
    if system.record is None:
        yield "a token that was forgotten is older than the margin", system.highest < system.peak - CLOCK_MARGIN
    else:
        yield "the record holds the largest token", system.record.token == system.highest
        yield "a cycle begins with one of its tokens", system.record.cycle <= system.record.token


def record_is_well_formed(record: Record) -> Iterator[Promise]:
    """Check which fields each record state may have."""
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
    yield "only a settled record has a window", state in (RecordState.COMPLETED, RecordState.FAILED) or not until
    yield "only FAILED is final", any_of(state is RecordState.FAILED, negate(record.final))
    if state is RecordState.PENDING:
        yield (
            "only an expired lease under verify sets ask_first",
            implies(record.ask_first, record.after_crash is AfterCrash.VERIFY),
        )
        yield (
            "only a record with ask_first is released as PENDING",
            implies(record.released, all_of(record.ask_first, lease)),
        )
        yield (
            "ask_first follows an earlier attempt",
            implies(record.ask_first, any_of(record.released, record.attempt >= 2)),
        )
    elif state is not RecordState.PARKED:
        yield "a record with a known outcome has no ask_first", negate(record.ask_first)
    if state in (RecordState.PARKED, RecordState.COMPLETED):
        yield "an owner that released cannot complete", implies(record.released, record.nonce == NO_OWNER)
    if state is RecordState.FAILED:
        yield (
            "an owner that released did not fail finally",
            implies(all_of(record.released, record.final), record.nonce == NO_OWNER),
        )
    if state is RecordState.FREE:
        yield "FREE has no work", all_of(record.attempt == 0, record.after_crash is AfterCrash.RERUN)
    else:
        yield "attempts are counted", record.attempt >= (0 if state is RecordState.FAILED else 1)


def token_is_known(system: SystemState, grant: Grant) -> Iterator[Promise]:
    yield "no grant is above the largest token", all_of(grant.token <= system.highest, negate(grant.nonce == NO_OWNER))
    record = system.record
    if record is not None:
        holder = any_of(record.nonce == grant.nonce, record.nonce == NO_OWNER)
        yield "the token belongs to one nonce", implies(record.token == grant.token, holder)


def belief_is_true(system: SystemState, grant: Grant) -> Iterator[Promise]:
    """Hold as long as the store's clock does not run ahead of real time."""
    owned = still_owned(system.record, grant)
    yield "a client that believes its lease to be live is the owner", implies(alive(system, grant), owned)
    yield (
        "no client counts on more than one lease from now",
        any_of(grant.unending, grant.ends <= system.real + grant.lease),
    )
    record = system.record
    if record is not None and record.lease_until is not None:
        covered = all_of(negate(grant.unending), grant.ends + system.now - system.real <= record.lease_until)
        yield (
            "no owner believes in a longer lease than the store's",
            implies(all_of(owned, negate(grant.ended)), covered),
        )


def only_one(system: SystemState, one: Grant, other: Grant) -> Iterator[Promise]:
    yield "no two grants have one token", implies(one.token == other.token, one.nonce == other.nonce)
    twice = all_of(one.token == other.token, one.nonce == other.nonce)
    both = all_of(alive(system, one), alive(system, other), negate(system.jumped))
    yield "at most one live owner", implies(both, twice)


def alive(system: SystemState, grant: Grant) -> Any:
    """Whether the client still works under this grant, by its own clock."""
    return all_of(grant.received, negate(grant.ended), any_of(grant.unending, system.real < grant.ends))


def still_owned(record: Record | None, grant: Grant) -> Any:
    if record is None or record.state is not RecordState.PENDING:
        return False
    return all_of(record.token == grant.token, record.nonce == grant.nonce, negate(record.released))
