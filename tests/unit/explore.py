"""Explore every history of one key with two clients and many faults, up to a length, by breadth-first search.

    assert explore().violation is None

Clients claim, renew and settle. They crash, their replies are lost, the network delivers requests twice, leases
expire, windows end, the clock is set back, an operator forgets and resolves. After each step the promises of the state
table are checked against what the clients themselves know. The shortest history that breaks a promise is reported.

`Rules` has the functions under test, so that a changed or new implementation can be checked as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from onceward.protocol import transitions
from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import (
    ClaimRequest,
    Complete,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Validity,
    Verdict,
)
from tests.unit.promises import (
    CHANGES,
    BrokenPromise,
    Grant,
    ModelClient,
    Step,
    SystemState,
    after_claim,
    after_owner_verb,
    check_one_live_owner,
    end_grant,
    identity,
    observe,
    require,
)

ID = b"one key"
TICK = 8  # the lease, and how far time moves in one step: a lease expires after one step, a window ends after two
WINDOW = 2 * TICK
START = 1_000
OWNER_VERBS = ("complete", "fail", "refuse", "park", "release")


class Rules(NamedTuple):
    """The functions under test."""

    claim: Callable[[Record | None, ClaimRequest, int], Step] = transitions.claim
    renew: Callable[[Record | None, Renewal, int], Step] = transitions.renew
    settle: Callable[[Record | None, Any, int], Step] = transitions.settle
    forget: Callable[..., Step] = transitions.forget


class Scenario(NamedTuple):
    """The policies of the two clients, and how many calls, faults and interventions there may be."""

    name: str
    after_crash: tuple[AfterCrash, AfterCrash] = (AfterCrash.RERUN, AfterCrash.RERUN)
    fingerprints: tuple[bytes, bytes] = (b"\x01a", b"\x01a")
    max_attempts: int = 0
    lease: int | None = TICK
    validity: Validity = Validity(lasting=WINDOW)
    calls: int = 2
    faults: int = 2
    interventions: int = 1
    depth: int = 6

    @property
    def is_symmetric(self) -> bool:
        """Whether both clients have the same policies, so that it does not matter which one starts."""
        return self.after_crash[0] == self.after_crash[1] and self.fingerprints[0] == self.fingerprints[1]


SCENARIOS = (
    Scenario("sliding", validity=Validity(lasting=WINDOW, slide=WINDOW), calls=3, faults=0, interventions=0, depth=7),
    Scenario("other payloads", fingerprints=(b"\x01a", b"\x01b"), faults=1, interventions=0),
    Scenario("no lease", lease=None, faults=1),
    Scenario("rerun"),
    Scenario("two attempts", max_attempts=2),
    Scenario("verify", after_crash=(AfterCrash.VERIFY, AfterCrash.RERUN)),
    Scenario("park", after_crash=(AfterCrash.RERUN, AfterCrash.PARK)),
)


class ModelViolation(NamedTuple):
    """The broken promise, the scenario, and the shortest history that breaks it."""

    promise: str
    scenario: str
    history: tuple[str, ...]


class Exploration(NamedTuple):
    """How many system states and steps were explored, and the first violation, if any."""

    systems: int
    steps: int
    violation: ModelViolation | None


def explore(rules: Rules | None = None, scenarios: tuple[Scenario, ...] = SCENARIOS) -> Exploration:
    """Search every scenario; stop at the first violation."""
    systems = steps = 0
    for scenario in scenarios:
        found = _Search(rules or Rules(), scenario).run()
        systems, steps = systems + found.systems, steps + found.steps
        if found.violation is not None:
            return Exploration(systems, steps, found.violation)
    return Exploration(systems, steps, None)


class _Search:
    def __init__(self, rules: Rules, scenario: Scenario) -> None:
        self.rules = rules
        self.scenario = scenario
        self.label = ""

    def run(self) -> Exploration:
        scenario = self.scenario
        first = SystemState(None, (ModelClient(), ModelClient()), START, START, scenario.faults, scenario.interventions)
        waiting: deque[tuple[SystemState, tuple[str, ...]]] = deque([(first, ())])
        known = {identity(first)}
        steps = 0
        while waiting:
            system, history = waiting.popleft()
            last = len(history) + 1 == scenario.depth  # after the last step, states need not be compared
            try:
                for label, after in self.moves(system):
                    steps += 1
                    mark = None if last else identity(after)
                    if mark is not None and mark not in known:
                        known.add(mark)
                        waiting.append((after, (*history, label)))
            except BrokenPromise as broken:
                violation = ModelViolation(str(broken), scenario.name, (*history, self.label))
                return Exploration(len(known), steps, violation)
        return Exploration(len(known), steps, None)

    def moves(self, system: SystemState) -> Iterator[tuple[str, SystemState]]:
        for who in (0, 1) if system.record is not None or not self.scenario.is_symmetric else (0,):
            yield from self.moves_of(system, who)
        yield "a lease's time passes", system._replace(now=system.now + TICK, elapsed=system.elapsed + TICK)
        if system.steady and system.record is not None:
            yield "the clock is set back", system._replace(now=system.now - TICK, steady=False)
        if system.interventions and system.record is not None:
            yield from self.interventions(system._replace(interventions=system.interventions - 1))

    def moves_of(self, system: SystemState, who: int) -> Iterator[tuple[str, SystemState]]:
        me = system.clients[who]
        if me.asking:
            yield self.claim(system, who, "repeats its claim")
        elif me.grant is not None:
            if not me.settling:
                yield self.renew(system, who, me.grant)
            for verb in (me.settling,) if me.settling else OWNER_VERBS:
                yield self.settle(_with(system, who, _sending(me, verb)), who, f"sends {verb}")
        elif me.calls < self.scenario.calls:
            yield self.claim(_with(system, who, _calling(me, who)), who, "claims")
        if system.faults:
            yield from self.faults_of(system._replace(faults=system.faults - 1), who)

    def faults_of(self, system: SystemState, who: int) -> Iterator[tuple[str, SystemState]]:
        me = system.clients[who]
        if me.grant is not None or me.asking:
            yield f"{who} crashes", _with(system, who, me._replace(grant=None, asking=False, settling=""))
        elif me.calls < self.scenario.calls:
            asking = _calling(me, who)._replace(asking=True)
            yield self.claim(_with(system, who, asking), who, "claims, reply lost", reply_received=False)
        if me.grant is not None and not me.settling:
            for verb in OWNER_VERBS:
                settling = _sending(me, verb)._replace(settling=verb)
                yield self.settle(_with(system, who, settling), who, f"sends {verb}, reply lost", reply_received=False)
        if me.nonce:
            yield self.claim(system, who, "claimed; the request is delivered again", reply_received=False)
        if me.sent is not None:
            yield self.settle(system, who, f"sent {me.sent[0]}; it is delivered again", reply_received=False)

    def claim(
        self, system: SystemState, who: int, what: str, *, reply_received: bool = True
    ) -> tuple[str, SystemState]:
        self.label = f"{who} {what}"
        me, scenario = system.clients[who], self.scenario
        request = ClaimRequest(
            id=ID,
            scope="",
            key="",
            nonce=me.nonce,
            lease=scenario.lease,
            fingerprint=scenario.fingerprints[who],
            after_crash=scenario.after_crash[who],
            max_attempts=scenario.max_attempts,
        )
        record, verdict = self.rules.claim(system.record, request, system.now)
        after = after_claim(system, request, record, verdict)
        if not reply_received:
            return self.label, after
        grant = None
        if verdict is Verdict.ACQUIRED and record is not None:
            grant = Grant(record.token, record.nonce, _local_end(system, record))
        return self.label, check_one_live_owner(_with(after, who, me._replace(asking=False, grant=grant)))

    def renew(self, system: SystemState, who: int, grant: Grant) -> tuple[str, SystemState]:
        self.label = f"{who} renews"
        me = system.clients[who]
        renewal = Renewal(id=ID, token=grant.token, nonce=grant.nonce, lease=TICK)
        record, verdict = self.rules.renew(system.record, renewal, system.now)
        after = after_owner_verb(system, "renew", (grant.token, grant.nonce), (record, verdict), self.scenario.validity)
        kept = grant._replace(ends=_local_end(system, record)) if verdict is Verdict.OK and record is not None else None
        return self.label, check_one_live_owner(_with(after, who, me._replace(grant=kept)))

    def settle(
        self, system: SystemState, who: int, what: str, *, reply_received: bool = True
    ) -> tuple[str, SystemState]:
        self.label = f"{who} {what}"
        me = system.clients[who]
        if me.sent is None:
            raise ValueError("nothing was sent")
        verb, token, nonce = me.sent
        request = _settlement(verb, token, nonce, self.scenario)
        record, verdict = self.rules.settle(system.record, request, system.now)
        after = after_owner_verb(system, verb, (token, nonce), (record, verdict), self.scenario.validity)
        if not reply_received:
            return self.label, after
        return self.label, _with(after, who, me._replace(grant=None, settling=""))

    def interventions(self, system: SystemState) -> Iterator[tuple[str, SystemState]]:
        for force in (False, True):
            self.label = "an operator forgets the key" + (", forced" if force else "")
            record, verdict = self.rules.forget(system.record, system.now, force=force)
            require(verdict in CHANGES or record == system.record, "a refusal changes nothing")
            if record != system.record:
                first, second = (
                    client._replace(grant=end_grant(client.grant, system.elapsed)) for client in system.clients
                )
                yield self.label, observe(system._replace(clients=(first, second)), record)._replace(owner=None)
        if system.record is None or system.record.state is not RecordState.PARKED:
            return
        for resolution in Resolution:
            self.label = f"an operator resolves it as {resolution}"
            resolve = Resolve(
                id=ID, token_seen=system.record.token, resolution=resolution, validity=self.scenario.validity
            )
            record, verdict = self.rules.settle(system.record, resolve, system.now)
            require(verdict is Verdict.OK and record is not None, "an operator can resolve a parked record")
            until = system.now + (self.scenario.validity.lasting or 0)
            yield self.label, observe(system, record)._replace(owner=None, answers_until=until)


# ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _settlement(verb: str, token: int, nonce: bytes, scenario: Scenario) -> Complete | Fail | Park | Release:
    if verb == "complete":
        return Complete(id=ID, token=token, nonce=nonce, digest=nonce, validity=scenario.validity)
    if verb == "park":
        return Park(id=ID, token=token, nonce=nonce)
    if verb == "release":
        return Release(id=ID, token=token, nonce=nonce)
    limit, final = scenario.max_attempts, verb == "refuse"
    return Fail(
        id=ID, token=token, nonce=nonce, known=True, final=final, max_attempts=limit, validity=scenario.validity
    )


def _calling(me: ModelClient, who: int) -> ModelClient:
    return me._replace(calls=me.calls + 1, nonce=b"%d.%d" % (who, me.calls), sent=None)


def _sending(me: ModelClient, verb: str) -> ModelClient:
    return me if me.grant is None else me._replace(sent=(verb, me.grant.token, me.grant.nonce))


def _with(system: SystemState, who: int, client: ModelClient) -> SystemState:
    clients = (client, system.clients[1]) if who == 0 else (system.clients[0], client)
    return system._replace(clients=clients)


def _local_end(system: SystemState, record: Record) -> int | None:
    return None if record.lease_until is None else system.elapsed + record.lease_until - system.now
