"""All possible next steps of one record and the attempts of its clients. Each step is checked against the promises.

An attempt does here what `engine/` does, in the same states: `acquire` in CLAIMING and WAITING, `conclude` in RUNNING
and VERIFYING, `settle` in SETTLING, `abandon` after an interrupt. It moves along the table of `engine/attempt.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from onceward.engine.attempt import (
    ABANDONED,
    CLAIMING,
    ENDED,
    LOST,
    MOVES,
    NEW,
    OWNED,
    REFUSED,
    RUNNING,
    SETTLED,
    SETTLING,
    UNKNOWN,
    UNPROTECTED,
    VERIFYING,
    WAITING,
    AttemptState,
)
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import (
    ClaimRequest,
    Complete,
    Fail,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Verdict,
)

from .attempt_promises import LEGAL, of_change, of_move, of_release, of_world
from .attempt_settlements import BECOMES, settlement
from .attempt_world import START, WINDOW, AttemptScenario, Client, World, owns
from .logic import Promise
from .moves import ID, NAMES
from .scenarios import LEASE, STEP
from .system import SHIPPED, Broken, Rules

Move = tuple[str, World]
"""What happened, and the state after it."""

HELD = (OWNED, VERIFYING, RUNNING)


class AttemptSteps:
    """The steps of one scenario. `moves` counts the moves of the table that were made."""

    def __init__(self, scenario: AttemptScenario, rules: Rules = SHIPPED) -> None:
        self.scenario = scenario
        self.rules = rules
        self.moves: Counter[tuple[AttemptState, AttemptState]] = Counter()

    def first(self) -> World:
        return World(None, START, (Client(),) * len(self.scenario.callers))

    def after(self, world: World) -> Iterator[Move]:
        for index, client in enumerate(world.clients):
            yield from self.step(world, index, client)
            yield from self.renew(world, index, client)
            yield from self.arrive_late(world, index, client)
            yield from self.clean_up(world, index, client)
            if client.state is not NEW:
                what = "calls again" if client.state in ENDED or client.state is UNPROTECTED else "crashes and restarts"
                yield f"{NAMES[index]} {what}", world.with_client(index, Client())
        if self.scenario.operators:
            yield from self.operators(world)
        later = world.now + STEP
        kept = world.kept if world.kept is not None and later < world.kept else None
        yield "half a lease passes", world._replace(now=later, kept=kept)

    def step(self, world: World, index: int, client: Client) -> Iterator[Move]:
        """Yield the steps of the flow."""
        match client.state:
            case AttemptState.NEW:
                yield self.moved(world, index, "runs without a claim, as declared", self.to(client, UNPROTECTED))
                yield self.moved(world, index, "is interrupted before it claims", self.to(client, ABANDONED))
                yield self.begin_claim(world, index, client)
            case AttemptState.CLAIMING:
                yield from self.claim(world, index, client)
            case AttemptState.WAITING:
                yield self.begin_claim(world, index, client)
                yield self.moved(world, index, "is interrupted while it waits", self.to(client, ABANDONED))
            case AttemptState.OWNED:
                yield from self.begin(world, index, client)
                yield self.settle(world, index, client, "release", "gives the key back")
                yield self.settle(world, index, client, "park", "parks what it cannot process")
                yield self.interrupted(world, index, client)
            case AttemptState.VERIFYING:
                yield from self.verify(world, index, client)
                yield self.interrupted(world, index, client)
            case AttemptState.RUNNING:
                yield from self.run(world, index, client)
                yield self.interrupted(world, index, client)
            case AttemptState.SETTLING:
                yield from self.send_settlement(world, index, client)
            case AttemptState.SETTLED | AttemptState.UNKNOWN:
                yield from self.go_on(world, index, client)

    # ── claim ──

    def begin_claim(self, world: World, index: int, client: Client) -> Move:
        nonce = b"%d." % (world.calls + 1)
        claiming = self.to(client, CLAIMING)._replace(nonce=nonce, ends=world.now + LEASE, late=False)
        return self.moved(world._replace(calls=world.calls + 1), index, "sends a claim", claiming)

    def claim(self, world: World, index: int, client: Client) -> Iterator[Move]:
        then, verdict = self.apply_claim(world, index, client)
        said = f"{NAMES[index]}'s claim arrives → {verdict}"
        for what, after in self.on_claim_answer(then, index, client, verdict):
            yield self.moved(then, index, f"'s claim arrives → {verdict}{what}", after, verdict)
        again = self.sends_again(client._replace(late=self.scenario.late))
        yield f"{said}, the reply is lost", then.with_client(index, again)
        if again != client:
            yield f"{NAMES[index]} gets no answer and sends its claim again", world.with_client(index, again)
        yield self.moved(world, index, "gets no answer and gives up", self.on_no_claim_answer(client))
        yield self.moved(world, index, "is interrupted while it claims", self.to(client, ABANDONED, owes="release"))

    def sends_again(self, client: Client) -> Client:
        """Return the client whose claim is repeated: with the same nonce."""
        return client

    def on_claim_answer(
        self, world: World, index: int, client: Client, verdict: Verdict
    ) -> Iterator[tuple[str, Client]]:
        record = world.record
        if verdict is Verdict.ACQUIRED and record is not None:
            limit = self.scenario.callers[index].max_attempts
            owned = self.to(client, OWNED)._replace(
                token=record.token,
                ends=self.lease_end(world, client),
                after_crash=record.after_crash,
                ask_first=record.ask_first,
                used_up=limit > 0 and record.attempt > limit,
            )
            yield "", owned
        elif verdict is Verdict.SETTLED:
            yield ", it claims again", self.to(client, WAITING)
        else:
            if verdict is Verdict.RUNNING:
                yield ", it waits", self.to(client, WAITING)
            yield "", self.to(client, REFUSED, refused=verdict)

    def on_no_claim_answer(self, client: Client) -> Client:
        return self.to(client, UNKNOWN, owes="release")

    def lease_end(self, world: World, client: Client) -> int:
        """Return when the lease ends: counted from before the claim was sent for the first time."""
        return client.ends

    # ── the work ──

    def begin(self, world: World, index: int, client: Client) -> Iterator[Move]:
        if client.ask_first:
            yield self.moved(world, index, "verifies first", self.to(client, VERIFYING))
        else:
            yield self.run_handler(world, index, client)

    def run_handler(self, world: World, index: int, client: Client, what: str = "calls its handler") -> Move:
        label, then = self.moved(world, index, what, self.to(client, RUNNING, begun=True))
        strict = client.after_crash is not AfterCrash.RERUN
        return label, then._replace(doubt=then.doubt or (strict and owns(world.record, client)))

    def verify(self, world: World, index: int, client: Client) -> Iterator[Move]:
        yield self.settle(world, index, client, "park", "verifies: it cannot tell")
        if self.scenario.callers[index].after_crash is not AfterCrash.VERIFY:
            return  # this worker's policy has no `find`
        if world.doubt or client.begun:
            yield self.settle(world, index, client, "complete", "verifies: it has happened")
        clear = world._replace(doubt=world.doubt and not owns(world.record, client))
        not_applied = client._replace(verified=True)
        if client.begun:
            yield self.settle(clear, index, not_applied, "fail", "verifies: it has not happened")
        elif client.used_up:
            yield self.settle(clear, index, not_applied, "fail for good", "verifies: it has not happened")
        else:
            yield self.run_handler(clear, index, not_applied, "verifies: it has not happened, and calls its handler")

    def run(self, world: World, index: int, client: Client) -> Iterator[Move]:
        if client.joined:
            yield from self.leave_joined(world, index, client)
            return
        yield self.settle(world, index, client, "complete", "returns")
        if client.lost:
            yield self.moved(world, index, "raises after its key was lost", self.to(client, LOST))
            return
        yield self.settle(world, index, client, "fail", "raises: the effect did not happen")
        yield self.settle(world, index, client, "fail for good", "raises: refused for good")
        yield from self.raise_unknown(world, index, client)
        if self.scenario.joined:
            done = settlement("complete", client)
            then, verdict = self.apply(world, index, client, done)
            if verdict is Verdict.OK:
                joined = then.clients[index]._replace(joined="committed", request=done)
                yield f"{NAMES[index]} commits its result in its own transaction", then.with_client(index, joined)
            rolled_back = client._replace(joined="rolled back", request=done)
            yield f"{NAMES[index]} rolls back its result", world.with_client(index, rolled_back)

    def raise_unknown(self, world: World, index: int, client: Client) -> Iterator[Move]:
        """Yield the steps after an exception that says nothing about the effect: the own policy decides."""
        what = "raises: the effect is unknown"
        match self.scenario.callers[index].after_crash:
            case AfterCrash.RERUN:
                yield self.settle(world, index, client, "fail, effect unknown", what)
            case AfterCrash.PARK:
                yield self.settle(world, index, client, "park", what)
            case AfterCrash.VERIFY:
                yield self.moved(world, index, f"{what}, and verifies", self.to(client, VERIFYING))
                yield self.moved(world, index, f"{what}, to be verified later", self.to(client, ABANDONED))

    def leave_joined(self, world: World, index: int, client: Client) -> Iterator[Move]:
        """Yield the steps after `complete_in`: the record says whether the transaction was committed."""
        record = world.record
        yield self.moved(world, index, "cannot read whether it was committed", self.to(client, ABANDONED))
        if record is not None and record.state is RecordState.COMPLETED and record.token == client.token:
            settled = self.to(self.to(client, SETTLING), SETTLED, settled_as=RecordState.COMPLETED)
            yield self.moved(world, index, "reads that it was committed", settled, Verdict.OK)
        else:
            yield self.settle(world, index, client, "fail, effect unknown", "reads that it was not committed")

    def interrupted(self, world: World, index: int, client: Client) -> Move:
        """What has not begun is released. Otherwise the lease expires, at once if the store answers."""
        owes = "expire" if client.begun else "release"
        if owes == "release":
            self.check(of_release(client.state, client), f"{NAMES[index]} is interrupted and releases its key")
        return self.moved(world, index, "is interrupted", self.to(client, ABANDONED, owes=owes))

    # ── settle ──

    def settle(self, world: World, index: int, client: Client, verb: str, what: str) -> Move:
        request = settlement(verb, client)
        if isinstance(request, Release):
            self.check(of_release(client.state, client), f"{NAMES[index]} {what}")
        known = verb in ("fail", "fail for good")
        return self.moved(world, index, what, self.to(client, SETTLING, request=request, known=known))

    def send_settlement(self, world: World, index: int, client: Client) -> Iterator[Move]:
        then, verdict = self.apply(world, index, client, client.request)
        arrives = f"'s {type(client.request).__name__} arrives → {verdict}"
        yield self.moved(then, index, arrives, self.on_settle_answer(then.clients[index], verdict), verdict)
        yield f"{NAMES[index]}{arrives}, the reply is lost", then
        yield self.moved(world, index, "gets no answer and gives up", self.on_no_settle_answer(client))
        yield self.moved(world, index, "is interrupted before it sends it", self.to(client, UNKNOWN, request=None))

    def go_on(self, world: World, index: int, client: Client) -> Iterator[Move]:
        """Yield what may follow SETTLED and UNKNOWN: the completion again, or the work without a claim."""
        if client.request is None:
            yield self.moved(world, index, "runs without a claim, as declared", self.to(client, UNPROTECTED))
        if not isinstance(client.request, Complete) or (client.state is SETTLED and not self.scenario.again):
            return
        yield self.settle(world, index, client, "complete", "completes again")
        if self.scenario.again:
            yield self.settle(world, index, client, "complete otherwise", "completes with another result")

    def on_settle_answer(self, client: Client, verdict: Verdict) -> Client:
        if verdict is Verdict.OK:
            return self.to(client, SETTLED, settled_as=BECOMES[type(client.request)])
        if client.settled_as is not None:
            return self.to(client, SETTLED)
        return self.to(client, LOST if verdict is Verdict.LOST else UNKNOWN)

    def on_no_settle_answer(self, client: Client) -> Client:
        return self.to(client, UNKNOWN)

    # ── the heartbeat's thread, the network, operators ──

    def renew(self, world: World, index: int, client: Client) -> Iterator[Move]:
        if client.state not in HELD or client.lost:
            return
        then, verdict = self.apply(world, index, client, Renewal(ID, client.token, client.nonce, LEASE))
        if verdict is Verdict.OK:
            renewed = client._replace(ends=world.now + LEASE)
            yield f"{NAMES[index]} renews its lease", then.with_client(index, renewed)
        elif client.state is RUNNING and not client.joined:
            lost = client._replace(lost=True)
            yield f"{NAMES[index]}'s renewal → {verdict}", then.with_client(index, lost)

    def clean_up(self, world: World, index: int, client: Client) -> Iterator[Move]:
        """Yield what the process sends for an attempt that has ended: a release, or the end of its lease."""
        record = world.record
        if client.owes == "expire":
            then, verdict = self.apply(world, index, client, Renewal(ID, client.token, client.nonce, 0))
            yield f"{NAMES[index]} ends its lease → {verdict}", forgets_debt(then, index)
        elif client.owes == "release" and record is not None and self.recognises(record, client):
            then, verdict = self.apply(world, index, client, Release(ID, record.token, record.nonce))
            yield f"{NAMES[index]} releases its key → {verdict}", forgets_debt(then, index)

    def recognises(self, record: Record, client: Client) -> bool:
        """Return whether the record is that of the claim whose answer never came."""
        return owns(record, client)

    def arrive_late(self, world: World, index: int, client: Client) -> Iterator[Move]:
        """Yield the arrival of requests for which no flow waits any more."""
        if client.state not in ENDED and client.state is not UNPROTECTED:
            return
        unanswered = client.token == 0 and client.nonce != b"" and client.owes == "release"
        if unanswered or client.late:
            then, verdict = self.apply_claim(world, index, client)
            if then.record is not world.record:
                strayed = client._replace(late=False, strayed=client.late)
                yield f"{NAMES[index]}'s claim arrives late → {verdict}", then.with_client(index, strayed)
        if client.request is not None and client.state in (UNKNOWN, ABANDONED, SETTLED):
            then, verdict = self.apply(world, index, client, client.request)
            if then.record is not world.record:
                yield f"{NAMES[index]}'s {type(client.request).__name__} arrives late → {verdict}", then

    def operators(self, world: World) -> Iterator[Move]:
        record = world.record
        if record is None:
            return
        seen = Resolve(ID, record.token, Resolution.NOT_APPLIED, state_seen=record.state)
        for what, after in (
            ("an operator forgets the key", self.rules.forget(record, world.now)[0]),
            ("an operator forgets the key, forced", self.rules.forget(record, world.now, force=True)[0]),
            ("an operator resolves it as not applied", self.rules.settle(record, seen, world.now)[0]),
        ):
            if after is not record:
                clients = tuple(one._replace(cut=one.token > 0) for one in world.clients)
                yield what, world._replace(record=after, clients=clients, kept=None, doubt=False)

    # ── requests ──

    def apply_claim(self, world: World, index: int, client: Client) -> tuple[World, Verdict]:
        caller = self.scenario.callers[index]
        request = ClaimRequest(
            ID, "", "", client.nonce, LEASE, after_crash=caller.after_crash, max_attempts=caller.max_attempts
        )
        record, verdict = self.rules.claim(world.record, request, world.now)
        return world._replace(record=record), verdict

    def apply(self, world: World, index: int, client: Client, request: Any) -> tuple[World, Verdict]:
        """Apply a renewal or a settlement, and note what really happened."""
        verb = self.rules.renew if isinstance(request, Renewal) else self.rules.settle
        record, verdict = verb(world.record, self.addressed(world.record, request), world.now)
        if record is world.record:
            return world, verdict
        label = f"{NAMES[index]}'s {type(request).__name__} arrives → {verdict}"
        self.check(of_change(world.record, client, request), label)
        then = world._replace(record=record)
        if isinstance(request, Renewal):
            return then, verdict
        if isinstance(request, Complete):
            then = then._replace(kept=world.now + WINDOW, doubt=False)
        elif isinstance(request, Fail):
            then = then._replace(doubt=world.doubt and not client.known)
        return then.with_client(index, client._replace(recorded=request)), verdict

    def addressed(self, record: Record | None, request: Any) -> Any:
        """Return the request as it is sent: with the token and the nonce of this attempt."""
        return request

    # ── moves and checks ──

    def to(self, client: Client, state: AttemptState, **changes: Any) -> Client:
        """Move along the table of `engine/attempt.py`."""
        if state not in MOVES[client.state]:
            raise Broken(LEGAL, f"an attempt goes from {client.state} to {state}")
        self.moves[client.state, state] += 1
        return client._replace(state=state, **changes)

    def moved(self, world: World, index: int, what: str, client: Client, verdict: Verdict | None = None) -> Move:
        label = f"{NAMES[index]}{'' if what.startswith(chr(39)) else ' '}{what}"
        self.check(of_move(world, world.clients[index], client, verdict), label)
        return label, world.with_client(index, client)

    def check_world(self, world: World, label: str) -> None:
        self.check(of_world(world), label)

    def check(self, promises: Iterable[Promise], label: str) -> None:
        for promise, holds in promises:
            if not holds:
                raise Broken(promise, label)


def forgets_debt(world: World, index: int) -> World:
    return world.with_client(index, world.clients[index]._replace(owes=""))
