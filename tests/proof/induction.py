"""The proof: whatever holds in `invariant` before a step holds after it, and the step keeps every promise.

Time, tokens, attempts and the number of clients have no bound. For each shape of a record and each kind of request, the
rules are run on symbols (`paths`), and z3 is asked for values that satisfy the invariant before and break it, or a
promise, after. It finds none for the shipped table, and some for each mutant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import z3
from msgspec.structs import replace

from onceward.protocol.cells import KEEP_UNFINISHED
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import ClaimRequest, Verdict
from onceward.protocol.transitions import CLOCK_MARGIN

from .invariant import invariant
from .logic import Promise, all_of, any_of, choose, flag, formula, implies, larger, negate, number
from .paths import paths
from .promises_to_callers import of_claim
from .promises_to_owners import of_forget, of_owner, of_purge, of_resolve
from .symbolic import claims, renewals, resolutions, sensible, settlements, shape, worlds
from .world import SHIPPED, Grant, Rules, World

Stepped = tuple[list[Any], World | None, list[Promise]]
"""What is premised of the step beside the invariant; the world afterwards; what the step itself promised."""


class Refutation(NamedTuple):
    """Values that satisfy the invariant, after which this verb breaks this promise."""

    verb: str
    shape: str
    promise: str


class Proof(NamedTuple):
    """How much was asked of z3, and the first answer that it should not have had."""

    worlds: int
    cases: int
    ways: int
    promises: int
    refutation: Refutation | None = None


VERBS = {
    "claim": {"claim"},
    "renew": {"renew"},
    "settle": {"complete", "fail", "park", "release", "resolve"},
    "forget": {"forget"},
    "purgeable": {"purge"},
}
"""Which steps depend on which of the rules."""


def prove(rules: Rules = SHIPPED, verbs: Collection[str] | None = None, states: Collection[RecordState] = ()) -> Proof:
    """Check the first world, and every step; or only steps of these verbs, on records in these states."""
    counted = Proof(0, 0, 0, 0)
    if verbs is None:
        counted, found = asked(counted, z3.Solver(), first)
        if found is not None:
            return counted._replace(refutation=Refutation("first", "none", found))
    for world in worlds():
        if states and (world.record is None or world.record.state not in states):
            continue
        counted = counted._replace(worlds=counted.worlds + 1)
        solver = knowing(world)
        for verb, call in cases(rules, world):
            if verbs is None or verb in verbs:
                counted, found = asked(counted, solver, call)
                if found is not None:
                    return counted._replace(refutation=Refutation(verb, shape(world), found))
    return counted


def refute(rules: Rules) -> Refutation | None:
    """What the proof has against rules of which some are not the shipped ones: the others were proved before."""
    changed = (name for name in rules._fields if getattr(rules, name) is not getattr(SHIPPED, name))
    return prove(rules, {verb for name in changed for verb in VERBS[name]}).refutation


def knowing(world: World) -> Any:
    """A solver that knows the invariant of this world."""
    solver = z3.SolverFor("QF_LIA")  # whole numbers, linear, without quantifiers: always decided
    solver.add(*(formula(one) for _, one in invariant(world)), *(formula(one) for one in sensible()))
    return solver


def asked(counted: Proof, solver: Any, call: Callable[[], Stepped]) -> tuple[Proof, str | None]:
    found, ways, promises = broken(solver, call)
    return counted._replace(
        cases=counted.cases + 1, ways=counted.ways + ways, promises=counted.promises + promises
    ), found


def broken(solver: Any, call: Callable[[], Stepped]) -> tuple[str | None, int, int]:
    """A promise that a step of this call can break, if any; how many ways lead through it, and the promises on them."""
    ways = list(paths(call))
    failures, kept = [], []
    for conditions, (premises, then, promises) in ways:
        kept.append([one for one in chain(promises, () if then is None else invariant(then)) if one[1] is not True])
        whole = all_of(*(condition for _, condition in kept[-1]))
        failures.append(formula(all_of(*conditions, *premises, negate(whole))))
    asked = len(ways), sum(len(promises) for promises in kept)
    if solver.check(z3.Or(failures)) == z3.unsat:
        return None, *asked
    model = solver.model()
    for failure, promises in zip(failures, kept, strict=True):
        if z3.is_true(model.eval(failure, model_completion=True)):
            for sentence, condition in promises:
                if z3.is_false(model.eval(formula(condition), model_completion=True)):
                    return sentence, *asked
    raise AssertionError("z3 could not decide")


# ── the steps ───────────────────────────────────────────────────────────────────────────────────────────────────


def cases(rules: Rules, world: World) -> Iterator[tuple[str, Callable[[], Stepped]]]:
    for request in claims():
        yield "claim", partial(claimed, rules, world, request)
    for renewal in renewals():
        yield "renew", partial(renewed, rules, world, renewal)
    for settlement in settlements():
        yield type(settlement).__name__.lower(), partial(settled, rules, world, settlement)
    for resolution in resolutions():
        yield "resolve", partial(resolved, rules, world, resolution)
    yield "forget", partial(forgotten, rules, world)
    yield "purge", partial(purged, rules, world)
    yield "time", partial(passed, world)


def first() -> Stepped:
    """Nobody has asked for anything, and every token that was ever purged is older than the margin."""
    nobody = tuple(one._replace(issued=False) for one in next(worlds()).grants)
    now, highest = number("now"), number("highest")
    begun = World(None, now, now, number("real"), jumped=False, highest=highest, grants=nobody)
    return [highest < now - CLOCK_MARGIN], begun, []


def claimed(rules: Rules, world: World, request: ClaimRequest) -> Stepped:
    record, verdict = rules.claim(world.record, request, world.now)
    kept = list(of_claim(world, request, record, verdict))
    if verdict is not Verdict.ACQUIRED or record is None:
        return [], holding(world, record), kept
    premises, grants = [], []
    for grant in world.grants:
        hit = all_of(record.token == grant.token, record.nonce == grant.nonce)
        premises.append(implies(all_of(hit, negate(grant.issued)), as_asked(grant, request, world.real)))
        heard = choose(all_of(hit, grant.issued), any_of(grant.heard, flag("heard now")), grant.heard)
        grants.append(grant._replace(issued=any_of(grant.issued, hit), heard=heard))
    return premises, holding(world._replace(grants=tuple(grants)), record), kept


def as_asked(grant: Grant, request: ClaimRequest, real: Any) -> Any:
    """A grant has the lease of its call, counted from before the call; that is what makes it this call's grant."""
    if request.lease is None:
        return grant.unending
    return all_of(negate(grant.unending), grant.lease == request.lease, grant.ends <= real + request.lease)


def renewed(rules: Rules, world: World, request: Any) -> Stepped:
    record, verdict = rules.renew(world.record, request, world.now)
    kept = list(of_owner(world, request, record, verdict))
    premises, grants = [], []
    for place, grant in enumerate(world.grants):
        sender = sent_by(grant, request)
        premises.append(implies(all_of(sender, negate(grant.ended)), request.lease == grant.lease))
        until = number(f"{place}.ends later")
        premises.append(until <= world.real + request.lease)  # counted from before the renewal was sent
        heard = all_of(sender, negate(grant.ended), flag("heard now"), verdict is Verdict.OK)
        grants.append(grant._replace(ends=choose(heard, until, grant.ends)))
    return premises, holding(world._replace(grants=tuple(grants)), record), kept


def settled(rules: Rules, world: World, request: Any) -> Stepped:
    record, verdict = rules.settle(world.record, request, world.now)
    kept = list(of_owner(world, request, record, verdict))
    grants = (one._replace(ended=any_of(one.ended, sent_by(one, request))) for one in world.grants)
    return [], holding(world._replace(grants=tuple(grants)), record), kept


def sent_by(grant: Grant, request: Any) -> Any:
    return all_of(grant.token == request.token, grant.nonce == request.nonce)


def resolved(rules: Rules, world: World, request: Any) -> Stepped:
    record, verdict = rules.settle(world.record, request, world.now)
    return [], holding(world, record), list(of_resolve(world, request, record, verdict))


def forgotten(rules: Rules, world: World) -> Stepped:
    """Whoever forces it answers for the owner's work."""
    force = flag("force")
    record, verdict = rules.forget(world.record, world.now, force=force)
    kept = list(of_forget(world, force, record, verdict))
    cut = all_of(force, record is not world.record)
    grants = tuple(one._replace(ended=any_of(one.ended, cut)) for one in world.grants)
    return [], holding(world._replace(grants=grants), record), kept


def purged(rules: Rules, world: World) -> Stepped:
    if world.record is None:
        return [], None, []
    gone = rules.purgeable(world.record, world.now)
    kept = list(of_purge(world, gone, CLOCK_MARGIN, KEEP_UNFINISHED))
    return [gone], world._replace(record=None), kept


def passed(world: World) -> Stepped:
    """Time passes, and the store's clock shows what it likes, but never more than the margin below its peak."""
    now, real = number("now later"), number("real later")
    peak = larger(now, world.peak)
    premises = [real >= world.real, now >= peak - CLOCK_MARGIN]
    ahead = any_of(world.jumped, now - world.now > real - world.real)
    later = world._replace(now=now, real=real, peak=peak, jumped=ahead)
    if later.record is not None:
        later = later._replace(record=replace(later.record, min_reader=number("min_reader later")))
    return premises, later, []


def holding(world: World, record: Record | None) -> World:
    if record is world.record:
        return world
    highest = world.highest if record is None else larger(record.token, world.highest)
    return world._replace(record=record, highest=highest)
