"""Decides when two states of the system are the same: their differences can never matter again.

Times are relative to now, and times in the distant past are equal. Tokens are compared by their order and age, nonces
and results by their owner. Attempts are counted only as far as any rule depends on the number.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from onceward.protocol.record import NO_OWNER, Record, RecordState
from onceward.protocol.transitions import CLOCK_MARGIN

from .invariant import alive
from .observer import Observer
from .scenarios import STEP, Scenario
from .system import Grant, SystemState

REPLACED, GONE, ASKS, OWNED, OWNS = range(5)
SOME_TIME = -1
MANY = 2  # attempts: no scenario has a higher limit, and beyond the limit the number does not matter
LONG_PAST = -2 * CLOCK_MARGIN  # the clock cannot be set back to before it


def identity(system: SystemState, observer: Observer, scenario: Scenario) -> tuple[Any, ...]:
    record, now = system.record, system.now
    token = system.highest if record is None else record.token
    return (
        None if record is None else facts(record, now),
        tuple(
            sorted(client(system, one, number) for one, number in zip(system.grants, numbers(scenario), strict=True))
        ),
        token > now + LONG_PAST,
        system.peak - now,
        system.jumped,
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
    owned = state is RecordState.PENDING and not record.released
    attempt = min(record.attempt, MANY + owned)  # release decrements it again
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


def client(system: SystemState, grant: Grant, number: int) -> tuple[int, ...]:
    """Return what matters about a client: whether the record has its nonce, what it can still send, when it stops."""
    record = system.record
    if grant.nonce == NO_OWNER:
        return (number,)
    own = record is not None and grant.nonce == record.nonce
    works = (
        grant.received and not system.jumped and alive(system, grant)
    )  # must be False for a client that no longer owns the record
    if grant.received and (record is None or grant.token != record.token):
        return (number, own, REPLACED, works)
    ends = SOME_TIME if grant.unending or system.jumped else max(grant.ends - system.real, 0)
    if not grant.received:
        return (number, own, GONE) if grant.ended else (number, own, ASKS, ends)
    if grant.ended or record is None or record.state is not RecordState.PENDING:
        return (number, own, OWNED, works)
    return (number, own, OWNS, ends)


def left(until: int | None, now: int, least: int) -> int | None:
    return None if until is None else max(until - now, least)


@cache
def numbers(scenario: Scenario) -> tuple[int, ...]:
    """Give clients with equal requests the same number: it does not matter which of them acts."""
    return tuple(scenario.callers.index(one) for one in scenario.callers)
