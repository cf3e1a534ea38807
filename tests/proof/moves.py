"""Everything that can happen next to one key, its clients and its clock; each step is checked against the promises."""

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

from .facts import answers_no_more
from .logic import Promise
from .observer import REPLAYED, Observer
from .promises_to_callers import of_claim
from .promises_to_owners import of_forget, of_owner, of_purge, of_resolve
from .scenarios import LEASE, STEP, Scenario
from .world import Broken, Grant, Rules, World

ID = b"one key"
START = 1_000 * STEP
NAMES = "ABC"
SETTLEMENTS = ("complete", "complete otherwise", "fail", "fail, effect unknown", "refuse", "park", "release")
NOT_CALLED = Grant(0, NO_OWNER, 0, 0, unending=False, issued=False, heard=False, ended=True)

ONE_COMPLETES = "the store lets at most one owner complete"


class Moment(NamedTuple):
    """A world, and what an observer of it expects. `calls` are counted to name nonces."""

    world: World
    observer: Observer
    calls: int = 0


Move = tuple[str, Moment]
"""What happened, and what came of it."""


class Moves:
    """The steps of one scenario under one set of rules. `cells` counts which cell of the table answered what.

    `only` names the promises to look at, if not all.
    """

    def __init__(self, scenario: Scenario, rules: Rules, only: frozenset[str] | None = None) -> None:
        self.scenario = scenario
        self.rules = rules
        self.only = only
        self.cells: Counter[tuple[Row, str, Verdict]] = Counter()

    def first(self) -> Moment:
        nobody = (NOT_CALLED,) * len(self.scenario.callers)
        return Moment(World(None, START, START, START, jumped=False, highest=0, grants=nobody), Observer())

    def after(self, here: Moment) -> Iterator[Move]:
        accepted = 0
        for who, grant in enumerate(here.world.grants):
            yield from self.calls(here, who, grant)
            if not grant.heard:
                continue
            yield from self.renewals(here, who, grant)
            for verb in SETTLEMENTS:
                what, then = self.settle(here, who, grant, verb)
                if verb == "complete" and then.world.record is not here.world.record:
                    accepted += 1
                    self.check([(ONE_COMPLETES, accepted == 1)], what)
                yield what, then
        yield from self.operators(here)
        yield from self.time(here)

    # ── callers ──

    def calls(self, here: Moment, who: int, grant: Grant) -> Iterator[Move]:
        lease = self.scenario.callers[who].lease
        fresh = Grant(
            token=0,
            nonce=b"%d" % (here.calls + 1),
            lease=lease or 0,
            ends=here.world.real + (lease or 0),
            unending=lease is None,
            issued=False,
            heard=False,
            ended=False,
        )
        calling = here._replace(calls=here.calls + 1)
        yield from self.claim(calling, who, fresh, ("claims", "claims, the reply is lost"))
        if grant.nonce != NO_OWNER:
            asks = not grant.heard and not grant.ended
            yield from self.claim(
                here, who, grant, ("repeats its claim" if asks else "", "claimed; the request arrives again")
            )

    def claim(self, here: Moment, who: int, grant: Grant, whats: tuple[str, str]) -> Iterator[Move]:
        """Twice: the reply is heard, or lost. The first has no name if nobody waits for it."""
        world, caller = here.world, self.scenario.callers[who]
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
        record, verdict = self.rules.claim(world.record, request, world.now)
        label = self.answered(world, "claim", f"{NAMES[who]} {whats[0] or whats[1]}", record, verdict)
        new = verdict is Verdict.ACQUIRED and (
            world.record is None or record is None or record.token != world.record.token
        )
        over = (
            world.record is not None
            and world.record.state is not RecordState.FREE
            and answers_no_more(world.record, world.now)
        )
        self.check(here.observer.expects_of_claim(record, verdict, new=new, over=over), label)
        self.check(of_claim(world, request, record, verdict), label)
        for what, heard in zip(whats, (True, False), strict=True):
            if what:
                then = changed(here, record, who, granted(grant, record, verdict, heard=heard))
                observer = here.observer.after_claim(record, verdict, new=new, over=over, heard=heard)
                told = label if heard or not whats[0] else label.replace(whats[0], what)
                yield told, then if observer == here.observer else then._replace(observer=observer)

    # ── owners, or those who take themselves for one ──

    def renewals(self, here: Moment, who: int, grant: Grant) -> Iterator[Move]:
        world = here.world
        for verb, lease in (("renew", grant.lease or LEASE), ("lapse", 0)):
            request = Renewal(ID, grant.token, grant.nonce, lease)
            record, verdict = self.rules.renew(world.record, request, world.now)
            label = self.answered(world, "renew", f"{NAMES[who]} sends {verb}", record, verdict)
            self.check(of_owner(world, request, record, verdict), label)
            if verb == "lapse" or (verdict is not Verdict.OK and not grant.ended):
                yield label, changed(here, record, who, grant._replace(ended=True))
            elif not grant.ended:
                yield label, changed(here, record, who, grant._replace(ends=world.real + lease))
            if verb == "renew":
                yield f"{label}, the reply is lost", changed(here, record, who, grant)

    def settle(self, here: Moment, who: int, grant: Grant, verb: str) -> Move:
        world = here.world
        request = settlement(verb, grant, self.scenario, self.scenario.callers[who].max_attempts)
        record, verdict = self.rules.settle(world.record, request, world.now)
        label = self.answered(world, verb, f"{NAMES[who]} sends {verb}", record, verdict)
        self.check(of_owner(world, request, record, verdict), label)
        then = changed(here, record, who, grant if grant.ended else grant._replace(ended=True))
        if record is not world.record:
            self.check([(REPLAYED, here.observer.kept is None)], label)
            then = then._replace(observer=here.observer.after_settlement(request, record, world.now))
        return label, then

    # ── operators and upkeep ──

    def operators(self, here: Moment) -> Iterator[Move]:
        world = here.world
        for force in (False, True):
            record, verdict = self.rules.forget(world.record, world.now, force=force)
            what = "somebody forgets the key" + (", forced" if force else "")
            label = self.answered(world, "forget", what, record, verdict)
            self.check(of_forget(world, force, record, verdict), label)
            if record is not world.record:  # whoever forces it answers for the owner's work
                cut = tuple(one._replace(ended=True) for one in world.grants) if force else world.grants
                yield label, here._replace(world=holding(world._replace(grants=cut), record), observer=Observer())
        seen = {world.highest}
        if world.record is not None and world.record.state is RecordState.PARKED:
            seen.update(one.token for one in world.grants if one.issued)
        for resolution in Resolution:
            for token in sorted(seen):
                yield self.resolve(here, token, resolution)
        if world.record is None:
            return
        gone = bool(self.rules.purgeable(world.record, world.now))
        label = self.answered(world, "purge", "purge", world.record, Verdict.OK if gone else Verdict.REFUSED)
        self.check(of_purge(world, gone, CLOCK_MARGIN, KEEP_UNFINISHED), label)
        if gone:
            self.check([(REPLAYED, here.observer.kept is None)], label)
            yield label, here._replace(world=world._replace(record=None), observer=here.observer._replace(cycle=None))

    def resolve(self, here: Moment, token: int, resolution: Resolution) -> Move:
        world = here.world
        digest = b"resolved" if resolution is Resolution.APPLIED else b""
        request = Resolve(ID, token, resolution, digest=digest, validity=self.scenario.validity)
        record, verdict = self.rules.settle(world.record, request, world.now)
        label = self.answered(world, "resolve", f"somebody resolves it as {resolution}", record, verdict)
        self.check(of_resolve(world, request, record, verdict), label)
        if record is world.record:
            return label, here
        observer = here.observer.after_settlement(request, record, world.now)
        return label, here._replace(world=holding(world, record), observer=observer)

    def time(self, here: Moment) -> Iterator[Move]:
        world = here.world
        yield "half a lease passes", at(here, world.now + STEP, world.real + STEP)
        if self.scenario.clock and world.now == world.peak:
            yield "the store's clock is set back by an hour", at(here, world.now - CLOCK_MARGIN, world.real)
        elif self.scenario.clock:
            yield "the store's clock is set right again", at(here, world.now + CLOCK_MARGIN, world.real)
        if self.scenario.newer and world.record is not None:
            reader = READER if world.record.min_reader > READER else READER + 1
            rewritten = replace(world.record, min_reader=reader)
            yield "a newer version rewrites the record", here._replace(world=world._replace(record=rewritten))

    # ── telling and checking ──

    def answered(self, world: World, verb: str, what: str, record: Record | None, verdict: Verdict) -> str:
        self.cells[row_of(world.record, world.now), verb, verdict] += 1
        if record is world.record or record is None:
            return f"{what} → {verdict}"
        return f"{what} → {verdict}: {record.state}, attempt {record.attempt}, token {record.token}"

    def check(self, promises: Iterable[Promise], label: str) -> None:
        for promise, holds in promises:
            if not holds and (self.only is None or promise in self.only):
                raise Broken(promise, label)


def granted(grant: Grant, record: Record | None, verdict: Verdict, *, heard: bool) -> Grant:
    """What a client has after a claim of its was answered, whether or not it heard of it."""
    if verdict is not Verdict.ACQUIRED or record is None:
        return grant if grant.issued else grant._replace(ended=True)  # told no: what follows is another call
    if grant.heard:  # it has had its answer: this request came again on its own, and nobody waits for this grant
        return grant
    return grant._replace(token=record.token, issued=True, heard=heard)


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


def changed(here: Moment, record: Record | None, who: int, grant: Grant) -> Moment:
    world = here.world
    if grant is world.grants[who]:
        return here if record is world.record else here._replace(world=holding(world, record))
    grants = (*world.grants[:who], grant, *world.grants[who + 1 :])
    return here._replace(world=holding(world._replace(grants=grants), record))


def holding(world: World, record: Record | None) -> World:
    highest = world.highest if record is None else max(world.highest, record.token)
    return world._replace(record=record, highest=highest)


def at(here: Moment, now: int, real: int) -> Moment:
    world = here.world
    ahead = world.jumped or now - world.now > real - world.real
    later = world._replace(now=now, real=real, peak=max(world.peak, now), jumped=ahead)
    return here._replace(world=later, observer=here.observer.at(now))
