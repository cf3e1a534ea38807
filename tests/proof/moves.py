"""All possible next steps of one key, its clients and its clock. Each step is checked against the promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import NO_OWNER, READER, Record, RecordState
from onceward.protocol.requests import (
    ClaimRequest,
    Complete,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Verdict,
)
from onceward.protocol.transitions import CLOCK_MARGIN, Row, row_of

from .facts import is_after_its_window
from .logic import Promise
from .observer import REPLAYED, Observer
from .promises_to_callers import of_claim
from .promises_to_owners import of_forget, of_owner, of_purge, of_resolve
from .scenarios import LEASE, STEP, Scenario
from .system import Broken, Grant, Rules, SystemState

ID = b"one key"
START = 1_000 * STEP
NAMES = "ABC"
SETTLEMENTS = ("complete", "complete otherwise", "fail", "fail, effect unknown", "refuse", "park", "release")
NOT_CALLED = Grant(0, NO_OWNER, 0, 0, unending=False, issued=False, received=False, ended=True)

ONE_COMPLETES = "the store lets at most one owner complete"


class Moment(NamedTuple):
    """A state of the system, and what an observer expects. `calls` are counted to name nonces."""

    system: SystemState
    observer: Observer
    calls: int = 0


Move = tuple[str, Moment]
"""What happened, and the state after it."""


class Moves:
    """The steps of one scenario under one set of rules. `cells` counts which cell of the table answered what.

    `only` limits the checks to these promises.
    """

    def __init__(self, scenario: Scenario, rules: Rules, only: frozenset[str] | None = None) -> None:
        self.scenario = scenario
        self.rules = rules
        self.only = only
        self.cells: Counter[tuple[Row, str, Verdict]] = Counter()

    def first(self) -> Moment:
        no_grants = (NOT_CALLED,) * len(self.scenario.callers)
        return Moment(SystemState(None, START, START, START, jumped=False, highest=0, grants=no_grants), Observer())

    def after(self, here: Moment) -> Iterator[Move]:
        accepted = 0
        for client, grant in enumerate(here.system.grants):
            yield from self.calls(here, client, grant)
            if not grant.received:
                continue
            yield from self.renewals(here, client, grant)
            for verb in SETTLEMENTS:
                what, then = self.settle(here, client, grant, verb)
                if verb == "complete" and then.system.record is not here.system.record:
                    accepted += 1
                    self.check([(ONE_COMPLETES, accepted == 1)], what)
                yield what, then
        yield from self.operators(here)
        yield from self.time(here)

    # ── callers ──

    def calls(self, here: Moment, client: int, grant: Grant) -> Iterator[Move]:
        lease = self.scenario.callers[client].lease
        fresh = Grant(
            token=0,
            nonce=b"%d" % (here.calls + 1),
            lease=lease or 0,
            ends=here.system.real + (lease or 0),
            unending=lease is None,
            issued=False,
            received=False,
            ended=False,
        )
        calling = here._replace(calls=here.calls + 1)
        yield from self.claim(calling, client, fresh, ("claims", "claims, the reply is lost"))
        if grant.nonce != NO_OWNER:
            asks = not grant.received and not grant.ended
            yield from self.claim(
                here, client, grant, ("repeats its claim" if asks else "", "claimed; the request arrives again")
            )

    def claim(self, here: Moment, client: int, grant: Grant, whats: tuple[str, str]) -> Iterator[Move]:
        """Yield two moves: the reply is received, or lost. The first has no name if no client waits for the reply."""
        system, caller = here.system, self.scenario.callers[client]
        request = ClaimRequest(
            ID,
            "",
            "",
            grant.nonce,
            caller.lease,
            caller.fingerprint,
            after_crash=caller.after_crash,
            max_attempts=caller.max_attempts,
        )
        record, verdict = self.rules.claim(system.record, request, system.now)
        label = self.answered(system, "claim", f"{NAMES[client]} {whats[0] or whats[1]}", record, verdict)
        new = verdict is Verdict.ACQUIRED and (
            system.record is None or record is None or record.token != system.record.token
        )
        over = (
            system.record is not None
            and system.record.state is not RecordState.FREE
            and is_after_its_window(system.record, system.now)
        )
        self.check(here.observer.expects_of_claim(record, verdict, new=new, over=over), label)
        self.check(of_claim(system, request, record, verdict), label)
        for what, received in zip(whats, (True, False), strict=True):
            if what:
                then = changed(here, record, client, granted(grant, record, verdict, received=received))
                observer = here.observer.after_claim(record, verdict, new=new, over=over, received=received)
                description = label if received or not whats[0] else label.replace(whats[0], what)
                yield description, then if observer == here.observer else then._replace(observer=observer)

    # ── owners, and clients that believe to be owners ──

    def renewals(self, here: Moment, client: int, grant: Grant) -> Iterator[Move]:
        system = here.system
        for verb, lease in (("renew", grant.lease or LEASE), ("lapse", 0)):
            request = Renewal(ID, grant.token, grant.nonce, lease)
            record, verdict = self.rules.renew(system.record, request, system.now)
            label = self.answered(system, "renew", f"{NAMES[client]} sends {verb}", record, verdict)
            self.check(of_owner(system, request, record, verdict), label)
            if verb == "lapse" or (verdict is not Verdict.OK and not grant.ended):
                yield label, changed(here, record, client, grant._replace(ended=True))
            elif not grant.ended:
                yield label, changed(here, record, client, grant._replace(ends=system.real + lease))
            if verb == "renew":
                yield f"{label}, the reply is lost", changed(here, record, client, grant)

    def settle(self, here: Moment, client: int, grant: Grant, verb: str) -> Move:
        system = here.system
        request = settlement(verb, grant, self.scenario, self.scenario.callers[client].max_attempts)
        record, verdict = self.rules.settle(system.record, request, system.now)
        label = self.answered(system, verb, f"{NAMES[client]} sends {verb}", record, verdict)
        self.check(of_owner(system, request, record, verdict), label)
        then = changed(here, record, client, grant if grant.ended else grant._replace(ended=True))
        if record is not system.record:
            self.check([(REPLAYED, here.observer.kept is None)], label)
            then = then._replace(observer=here.observer.after_settlement(request, record, system.now))
        return label, then

    # ── operators and upkeep ──

    def operators(self, here: Moment) -> Iterator[Move]:
        system = here.system
        for force in (False, True):
            record, verdict = self.rules.forget(system.record, system.now, force=force)
            what = "an operator forgets the key" + (", forced" if force else "")
            label = self.answered(system, "forget", what, record, verdict)
            self.check(of_forget(system, force, record, verdict), label)
            if record is not system.record:  # after a forced forget the operator is responsible for the owner's work
                cut = tuple(one._replace(ended=True) for one in system.grants) if force else system.grants
                yield label, here._replace(system=holding(system._replace(grants=cut), record), observer=Observer())
        seen = {system.highest}
        if system.record is not None and system.record.state is RecordState.PARKED:
            seen.update(one.token for one in system.grants if one.issued)
        for resolution in Resolution:
            for token in sorted(seen):
                yield self.resolve(here, token, resolution)
        if system.record is None:
            return
        gone = bool(self.rules.purgeable(system.record, system.now))
        label = self.answered(system, "purge", "purge", system.record, Verdict.OK if gone else Verdict.REFUSED)
        self.check(of_purge(system, gone, CLOCK_MARGIN, KEEP_UNFINISHED), label)
        if gone:
            self.check([(REPLAYED, here.observer.kept is None)], label)
            yield label, here._replace(system=system._replace(record=None), observer=here.observer._replace(cycle=None))

    def resolve(self, here: Moment, token: int, resolution: Resolution) -> Move:
        system = here.system
        digest = b"resolved" if resolution is Resolution.APPLIED else b""
        request = Resolve(ID, token, resolution, digest=digest, validity=self.scenario.validity)
        record, verdict = self.rules.settle(system.record, request, system.now)
        label = self.answered(system, "resolve", f"an operator resolves it as {resolution}", record, verdict)
        self.check(of_resolve(system, request, record, verdict), label)
        if record is system.record:
            return label, here
        observer = here.observer.after_settlement(request, record, system.now)
        return label, here._replace(system=holding(system, record), observer=observer)

    def time(self, here: Moment) -> Iterator[Move]:
        system = here.system
        yield "half a lease passes", at(here, system.now + STEP, system.real + STEP)
        if self.scenario.clock and system.now == system.peak:
            yield "the store's clock is set back by an hour", at(here, system.now - CLOCK_MARGIN, system.real)
        elif self.scenario.clock:
            yield "the store's clock is set right again", at(here, system.now + CLOCK_MARGIN, system.real)
        if self.scenario.newer and system.record is not None:
            reader = READER if system.record.min_reader > READER else READER + 1
            rewritten = replace(system.record, min_reader=reader)
            yield "a newer version rewrites the record", here._replace(system=system._replace(record=rewritten))

    # ── labels and checks ──

    def answered(self, system: SystemState, verb: str, what: str, record: Record | None, verdict: Verdict) -> str:
        self.cells[row_of(system.record, system.now), verb, verdict] += 1
        if record is system.record or record is None:
            return f"{what} → {verdict}"
        return f"{what} → {verdict}: {record.state}, attempt {record.attempt}, token {record.token}"

    def check(self, promises: Iterable[Promise], label: str) -> None:
        for promise, holds in promises:
            if not holds and (self.only is None or promise in self.only):
                raise Broken(promise, label)


def granted(grant: Grant, record: Record | None, verdict: Verdict, *, received: bool) -> Grant:
    """Return the client's grant after the store answered its claim, whether or not the reply was received."""
    if verdict is not Verdict.ACQUIRED or record is None:
        return grant if grant.issued else grant._replace(ended=True)  # refused: the client makes a new call next
    if grant.received:  # already answered: the network delivered the request again, and no client waits for the reply
        return grant
    return grant._replace(token=record.token, issued=True, received=received)


def settlement(verb: str, grant: Grant, scenario: Scenario, limit: int) -> Any:
    token, nonce, validity = grant.token, grant.nonce, scenario.validity
    match verb:
        case "complete" | "complete otherwise":
            digest = nonce if verb == "complete" else b"not " + nonce
            return Complete(ID, token, nonce, digest=digest, validity=validity)
        case "park":
            return Park(ID, token, nonce)
        case "release":
            return Release(ID, token, nonce)
    return Fail(
        ID,
        token,
        nonce,
        final=verb == "refuse",
        known=verb == "fail",
        retry_in=scenario.retry_in,
        max_attempts=limit,
        validity=validity,
    )


def changed(here: Moment, record: Record | None, client: int, grant: Grant) -> Moment:
    system = here.system
    if grant is system.grants[client]:
        return here if record is system.record else here._replace(system=holding(system, record))
    grants = (*system.grants[:client], grant, *system.grants[client + 1 :])
    return here._replace(system=holding(system._replace(grants=grants), record))


def holding(system: SystemState, record: Record | None) -> SystemState:
    highest = system.highest if record is None else max(system.highest, record.token)
    return system._replace(record=record, highest=highest)


def at(here: Moment, now: int, real: int) -> Moment:
    system = here.system
    ahead = system.jumped or now - system.now > real - system.real
    later = system._replace(now=now, real=real, peak=max(system.peak, now), jumped=ahead)
    return here._replace(system=later, observer=here.observer.at(now))
