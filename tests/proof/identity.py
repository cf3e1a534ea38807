"""When two worlds are one: what tells them apart can never matter again.

Times count from now, and long past ones are equal; tokens count by their order and by how old they are; nonces and
results by whom they belong to. A number of attempts counts up to where nothing depends on it any more.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from onceward.protocol.record import NO_OWNER, Record, RecordState
from onceward.protocol.transitions import CLOCK_MARGIN

from .invariant import alive
from .observer import Observer
from .scenarios import STEP, Scenario
from .world import Grant, World

REPLACED, GONE, ASKS, OWNED, OWNS = range(5)
SOME_TIME = -1
MANY = 2  # attempts: no scenario limits them to more, and above the limit and the first it does not matter how many
LONG_PAST = -2 * CLOCK_MARGIN  # the clock cannot be set back to before it


def identity(world: World, observer: Observer, scenario: Scenario) -> tuple[Any, ...]:
    record, now = world.record, world.now
    token = world.highest if record is None else record.token
    return (
        None if record is None else facts(record, now),
        tuple(sorted(client(world, one, number) for one, number in zip(world.grants, numbers(scenario), strict=True))),
        token > now + LONG_PAST,
        world.peak - now,
        world.jumped,
        observer.kept and left(observer.kept[1], now, 0),
        observer.doubted,
        observer.begun,
        observer.cycle is not None and (record is not None and record.cycle == observer.cycle, observer.opened),
    )


def facts(record: Record, now: int) -> tuple[Any, ...]:
    state = record.state
    shared = state, record.nonce == NO_OWNER, record.released, record.fingerprint, record.min_reader
    if state is RecordState.FREE:
        return shared
    if state is RecordState.COMPLETED:
        return *shared, left(record.valid_until, now, LONG_PAST)
    held = state is RecordState.PENDING and not record.released
    attempt = min(record.attempt, MANY + held)  # release takes one off again
    if state is RecordState.FAILED:
        return (
            *shared,
            attempt,
            record.final,
            left(record.retry_at, now, LONG_PAST),
            left(record.valid_until, now, LONG_PAST),
        )
    if state is RecordState.PARKED:
        return *shared, attempt, record.max_attempts
    first = record.attempt <= 1 and record.token == record.cycle
    lease = left(record.lease_until, now, LONG_PAST - STEP)
    return *shared, attempt, first, record.max_attempts, record.after_crash, record.ask_first, lease


def client(world: World, grant: Grant, number: int) -> tuple[int, ...]:
    """What matters of a client: does the record bear its nonce, what can it still send, when does it stop to work."""
    record = world.record
    if grant.nonce == NO_OWNER:
        return (number,)
    own = record is not None and grant.nonce == record.nonce
    works = grant.heard and not world.jumped and alive(world, grant)  # must not be said of who owns nothing any more
    if grant.heard and (record is None or grant.token != record.token):
        return (number, own, REPLACED, works)
    ends = SOME_TIME if grant.unending or world.jumped else max(grant.ends - world.real, 0)
    if not grant.heard:
        return (number, own, GONE) if grant.ended else (number, own, ASKS, ends)
    if grant.ended or record is None or record.state is not RecordState.PENDING:
        return (number, own, OWNED, works)
    return (number, own, OWNS, ends)


def left(until: int | None, now: int, least: int) -> int | None:
    return None if until is None else max(until - now, least)


@cache
def numbers(scenario: Scenario) -> tuple[int, ...]:
    """Clients that ask alike have one number: it does not matter which is which."""
    return tuple(scenario.callers.index(one) for one in scenario.callers)
