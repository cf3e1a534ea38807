"""The proof: if `invariant` holds before a step, it holds after the step, and the step keeps every promise.

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
from .symbolic import claims, renewals, resolutions, sensible, settlements, shape, system_states
from .system import SHIPPED, Grant, Rules, SystemState

Stepped = tuple[list[Any], SystemState | None, list[Promise]]
"""The premises of a step besides the invariant, the state after the step, and the promises of the step itself."""


class Refutation(NamedTuple):
    """Values that satisfy the invariant, after which this verb breaks this promise."""

    verb: str
    shape: str
    promise: str


class Proof(NamedTuple):
    """How much z3 was asked, and the first counterexample that it found, if any."""

    shapes: int
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
    """Check the first state and every step; or only steps of these verbs, on records in these states."""
    counted = Proof(0, 0, 0, 0)
    if verbs is None:
        counted, found = asked(counted, z3.Solver(), first)
        if found is not None:
            return counted._replace(refutation=Refutation("first", "none", found))
    for system in system_states():
        if states and (system.record is None or system.record.state not in states):
            continue
        counted = counted._replace(shapes=counted.shapes + 1)
        solver = solver_for(system)
        for verb, call in cases(rules, system):
            if verbs is None or verb in verbs:
                counted, found = asked(counted, solver, call)
                if found is not None:
                    return counted._replace(refutation=Refutation(verb, shape(system), found))
    return counted


def refute(rules: Rules) -> Refutation | None:
    """Find a counterexample to the rules that differ from the shipped ones; the others were proved before."""
    changed = (name for name in rules._fields if getattr(rules, name) is not getattr(SHIPPED, name))
    return prove(rules, {verb for name in changed for verb in VERBS[name]}).refutation


def solver_for(system: SystemState) -> Any:
    """Return a solver that assumes the invariant of this state."""
    solver = z3.SolverFor("QF_LIA")  # whole numbers, linear, without quantifiers: always decided
    solver.add(*(formula(one) for _, one in invariant(system)), *(formula(one) for one in sensible()))
    return solver


def asked(counted: Proof, solver: Any, call: Callable[[], Stepped]) -> tuple[Proof, str | None]:
    found, ways, promises = broken(solver, call)
    return counted._replace(
        cases=counted.cases + 1, ways=counted.ways + ways, promises=counted.promises + promises
    ), found


def broken(solver: Any, call: Callable[[], Stepped]) -> tuple[str | None, int, int]:
    """Return a promise that this call can break, or None; the number of paths through it, and of promises on them."""
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


def cases(rules: Rules, system: SystemState) -> Iterator[tuple[str, Callable[[], Stepped]]]:
    for request in claims():
        yield "claim", partial(claimed, rules, system, request)
    for renewal in renewals():
        yield "renew", partial(renewed, rules, system, renewal)
    for settlement in settlements():
        yield type(settlement).__name__.lower(), partial(settled, rules, system, settlement)
    for resolution in resolutions():
        yield "resolve", partial(resolved, rules, system, resolution)
    yield "forget", partial(forgotten, rules, system)
    yield "purge", partial(purged, rules, system)
    yield "time", partial(passed, system)


def first() -> Stepped:
    """Return the first state: no client has called yet, and every purged token is older than the margin."""
    no_grants = tuple(one._replace(issued=False) for one in next(system_states()).grants)
    now, highest = number("now"), number("highest")
    begun = SystemState(None, now, now, number("real"), jumped=False, highest=highest, grants=no_grants)
    return [highest < now - CLOCK_MARGIN], begun, []


def claimed(rules: Rules, system: SystemState, request: ClaimRequest) -> Stepped:
    record, verdict = rules.claim(system.record, request, system.now)
    kept = list(of_claim(system, request, record, verdict))
    if verdict is not Verdict.ACQUIRED or record is None:
        return [], holding(system, record), kept
    premises, grants = [], []
    for grant in system.grants:
        hit = all_of(record.token == grant.token, record.nonce == grant.nonce)
        premises.append(implies(all_of(hit, negate(grant.issued)), as_asked(grant, request, system.real)))
        received = choose(all_of(hit, grant.issued), any_of(grant.received, flag("received now")), grant.received)
        grants.append(grant._replace(issued=any_of(grant.issued, hit), received=received))
    return premises, holding(system._replace(grants=tuple(grants)), record), kept


def as_asked(grant: Grant, request: ClaimRequest, real: Any) -> Any:
    """Whether the grant has the lease of this call, counted from before the call: then it is this call's grant."""
    if request.lease is None:
        return grant.unending
    return all_of(negate(grant.unending), grant.lease == request.lease, grant.ends <= real + request.lease)


def renewed(rules: Rules, system: SystemState, request: Any) -> Stepped:
    record, verdict = rules.renew(system.record, request, system.now)
    kept = list(of_owner(system, request, record, verdict))
    premises, grants = [], []
    for place, grant in enumerate(system.grants):
        sender = sent_by(grant, request)
        premises.append(implies(all_of(sender, negate(grant.ended)), request.lease == grant.lease))
        until = number(f"{place}.ends later")
        premises.append(until <= system.real + request.lease)  # counted from before the renewal was sent
        received = all_of(sender, negate(grant.ended), flag("received now"), verdict is Verdict.OK)
        grants.append(grant._replace(ends=choose(received, until, grant.ends)))
    return premises, holding(system._replace(grants=tuple(grants)), record), kept


def settled(rules: Rules, system: SystemState, request: Any) -> Stepped:
    record, verdict = rules.settle(system.record, request, system.now)
    kept = list(of_owner(system, request, record, verdict))
    grants = (one._replace(ended=any_of(one.ended, sent_by(one, request))) for one in system.grants)
    return [], holding(system._replace(grants=tuple(grants)), record), kept


def sent_by(grant: Grant, request: Any) -> Any:
    return all_of(grant.token == request.token, grant.nonce == request.nonce)


def resolved(rules: Rules, system: SystemState, request: Any) -> Stepped:
    record, verdict = rules.settle(system.record, request, system.now)
    return [], holding(system, record), list(of_resolve(system, request, record, verdict))


def forgotten(rules: Rules, system: SystemState) -> Stepped:
    """A forced forget ends every grant: the operator is responsible for the owner's work."""
    force = flag("force")
    record, verdict = rules.forget(system.record, system.now, force=force)
    kept = list(of_forget(system, force, record, verdict))
    cut = all_of(force, record is not system.record)
    grants = tuple(one._replace(ended=any_of(one.ended, cut)) for one in system.grants)
    return [], holding(system._replace(grants=grants), record), kept


def purged(rules: Rules, system: SystemState) -> Stepped:
    if system.record is None:
        return [], None, []
    gone = rules.purgeable(system.record, system.now)
    kept = list(of_purge(system, gone, CLOCK_MARGIN, KEEP_UNFINISHED))
    return [gone], system._replace(record=None), kept


def passed(system: SystemState) -> Stepped:
    """Let time pass. The store's clock may show any time that is at most the margin below its peak."""
    now, real = number("now later"), number("real later")
    peak = larger(now, system.peak)
    premises = [real >= system.real, now >= peak - CLOCK_MARGIN]
    ahead = any_of(system.jumped, now - system.now > real - system.real)
    later = system._replace(now=now, real=real, peak=peak, jumped=ahead)
    if later.record is not None:
        later = later._replace(record=replace(later.record, min_reader=number("min_reader later")))
    return premises, later, []


def holding(system: SystemState, record: Record | None) -> SystemState:
    if record is system.record:
        return system
    highest = system.highest if record is None else larger(record.token, system.highest)
    return system._replace(record=record, highest=highest)
