"""One record and the attempts of its clients: the state that `attempt_search` explores."""

from __future__ import annotations

from typing import Any, NamedTuple

from onceward.engine.attempt import (
    ABANDONED,
    CLAIMING,
    LOST,
    NEW,
    OWNED,
    REFUSED,
    RUNNING,
    SETTLED,
    UNPROTECTED,
    VERIFYING,
    WAITING,
    AttemptState,
)
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import Complete, Fail, Verdict

from .identity import MANY, left
from .scenarios import PARK, RERUN, STEP, VERIFY, Caller

START = 1_000 * STEP
WINDOW = STEP


class AttemptScenario(NamedTuple):
    """Two clients, and the faults besides crashes, interrupts and lost replies.

    `joined`: `complete_in` commits the result in the caller's own transaction. `late`: a claim that got no answer, and
    was sent again, may still arrive later. `operators`: they forget and resolve.
    `again`: the handler completes its claim itself, more than once.
    """

    name: str
    callers: tuple[Caller, ...]
    joined: bool = False
    late: bool = False
    operators: bool = False
    again: bool = False


ATTEMPT_SCENARIOS = (
    AttemptScenario("completes itself", (RERUN, RERUN), again=True),
    AttemptScenario("complete_in", (RERUN, RERUN), joined=True),
    AttemptScenario("operators", (PARK, PARK), operators=True),
    AttemptScenario("one attempt, verify", (VERIFY._replace(max_attempts=1),) * 2),
    AttemptScenario("park meets verify", (PARK, VERIFY)),
)
"""The scenarios that CI searches."""

DEEP_ATTEMPT_SCENARIOS = (
    AttemptScenario("rerun", (RERUN, RERUN)),
    AttemptScenario("verify", (VERIFY, VERIFY)),
    AttemptScenario("verify meets rerun", (VERIFY, RERUN)),
    AttemptScenario("park meets rerun", (PARK, RERUN)),
    AttemptScenario("late claims", (RERUN, RERUN), late=True),
)
"""The scenarios that the soak searches, too."""


class Client(NamedTuple):
    """One attempt: its state in `engine/attempt.py`, what it knows, and what really happened.

    `ends`: when its lease ends, by its own clock. `verified`: `verify` found that no effect has happened. `begun`: the
    handler was called. `refused`: the verdict that refused it. `owes`: what its process still sends after its end.
    `recorded`: the settlement of this attempt that the store applied. `known`: whether the failure that it reports is
    known to have had no effect. `cut`: an operator or a purge removed its record. `late`: an earlier try of its claim
    may still arrive; `strayed`: it did.
    """

    state: AttemptState = NEW
    nonce: bytes = b""
    token: int = 0
    ends: int = 0
    after_crash: AfterCrash = AfterCrash.RERUN
    ask_first: bool = False
    used_up: bool = False
    verified: bool = False
    begun: bool = False
    refused: Verdict | None = None
    request: Any = None
    known: bool = False
    settled_as: RecordState | None = None
    joined: str = ""
    lost: bool = False
    owes: str = ""
    recorded: Any = None
    cut: bool = False
    late: bool = False
    strayed: bool = False


class World(NamedTuple):
    """`kept`: until when a result that the store accepted must be replayed.

    `doubt`: an effect under park or verify may have happened, and nothing reported its outcome. `calls` names nonces.
    """

    record: Record | None
    now: int
    clients: tuple[Client, ...]
    kept: int | None = None
    doubt: bool = False
    calls: int = 0

    def with_client(self, index: int, client: Client) -> World:
        return self._replace(clients=(*self.clients[:index], client, *self.clients[index + 1 :]))


def owns(record: Record | None, client: Client) -> bool:
    """Return whether the record is PENDING and belongs to this attempt."""
    return (
        record is not None
        and record.state is RecordState.PENDING
        and not record.released
        and record.nonce == client.nonce
        and client.nonce != b""
    )


def is_live(record: Record | None, now: int) -> bool:
    return record is not None and (record.lease_until is None or now < record.lease_until)


def world_identity(world: World, scenario: AttemptScenario) -> tuple[Any, ...]:
    """Return what matters about a world: times relative to now, tokens and nonces by whose they are."""
    record, callers = world.record, scenario.callers
    clients = [
        (callers.index(caller), *client_identity(world, client, scenario))
        for caller, client in zip(callers, world.clients, strict=True)
    ]
    return (
        record and record_identity(record, world.now, scenario),
        tuple(sorted(clients, key=hash)),
        world.kept and world.kept - world.now,
        world.doubt,
    )


def record_identity(record: Record, now: int, scenario: AttemptScenario) -> tuple[Any, ...]:
    state = record.state
    if state is RecordState.FREE or (record.valid_until is not None and record.valid_until <= now):
        return state, record.released
    limited = any(caller.max_attempts for caller in scenario.callers)
    owned = state is RecordState.PENDING and not record.released
    attempt = min(record.attempt, MANY + owned) if limited else 0  # release decrements it again
    first = record.attempt <= 1 and record.token == record.cycle
    if state is RecordState.PENDING:
        lease = left(record.lease_until, now, 0)
        return state, attempt, first, record.released, record.after_crash, record.ask_first, lease
    return state, attempt, record.final, record.released, left(record.valid_until, now, 0)


def client_identity(world: World, client: Client, scenario: AttemptScenario) -> tuple[Any, ...]:
    """Return what the client can still do, and what a promise still depends on."""
    record, state, request = world.record, client.state, client.request
    own = record is not None and record.nonce == client.nonce
    if state is NEW:
        return (state,)
    if state is CLAIMING:
        return state, own, max(client.ends - world.now, 0), client.late
    if state in (OWNED, VERIFYING, RUNNING):
        return (
            state,
            own,
            max(client.ends - world.now, 0),
            state is OWNED and client.ask_first,
            state is not RUNNING and client.used_up,
            client.after_crash,
            client.begun,
            client.joined,
            client.lost,
            client.cut,
            client.late,
        )
    if state in (REFUSED, LOST, WAITING) or (state is SETTLED and not scenario.again) or has_nothing_left(client):
        kind = state if state in (WAITING, LOST) else ABANDONED
        return kind, owns(record, client) and is_live(record, world.now), client.late and (own, client.request is None)
    return (
        ABANDONED if state is UNPROTECTED else state,
        own,
        own and record is not None and record.token == client.token,
        client.token == 0,
        type(request).__name__,
        isinstance(request, Complete) and request.digest,
        own and record is not None and isinstance(request, Complete) and request.digest == record.digest,
        isinstance(request, Fail) and (client.known, request.final),
        client.settled_as is not None,
        client.owes,
        client.recorded is not None,
        client.recorded == request,
        client.cut,
        client.late,
    )


def has_nothing_left(client: Client) -> bool:
    return client.state in (ABANDONED, UNPROTECTED) and not client.owes and client.request is None


def attempt_scenario(name: str) -> AttemptScenario:
    return next(one for one in (*ATTEMPT_SCENARIOS, *DEEP_ATTEMPT_SCENARIOS) if one.name == name)
