"""Search, prove, and refute the mutants; tell a person what was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .induction import prove, refute
from .mutants import MUTANTS, Mutant
from .scenarios import DEEP, SCENARIOS, Scenario, scenario
from .search import HARMS, Violation, search
from .swaps import EQUIVALENT, STATES, swapped, swaps

Tell = Callable[[str], None]


class Part(NamedTuple):
    """One part of the evidence: does it hold, and the figures that belong to it."""

    holds: bool
    figures: list[tuple[str, object]]


def run(*, deep: bool, tell: Tell) -> Part:
    """Everything. `deep`: three clients, the clock set back everywhere, denser samples: minutes instead of seconds."""
    searches = [(one, DENSE if deep else SAMPLE) for one in SCENARIOS]
    if deep:
        searches += [(one, SAMPLE) for one in DEEP]
    parts = [searched(searches, tell), proved(tell), exchanged(tell), refuted(tell)]
    return Part(all(part.holds for part in parts), [figure for part in parts for figure in part.figures])


SAMPLE, DENSE = 100, 5  # of the worlds that are taken for one seen before, each so many-th is compared with that one


def searched(searches: list[tuple[Scenario, int]], tell: Tell) -> Part:
    tell(f"{'Search: every world that can be reached':<52}{'worlds':>10}{'steps':>12}{'seconds':>9}")
    worlds = steps = compared = 0
    cells: set[tuple[object, ...]] = set()
    holds = True
    for one, sample in searches:
        began = time.perf_counter()
        found = search(one, sample=sample)
        worlds, steps, compared = worlds + found.worlds, steps + found.steps, compared + found.compared
        cells |= set(found.cells)
        tell(f"  {one.name:<50}{found.worlds:>10,}{found.steps:>12,}{time.perf_counter() - began:>9.1f}")
        if found.violation is not None:
            holds = False
            tell("\n".join(story(found.violation)))
    tell(f"  {'in all':<50}{worlds:>10,}{steps:>12,}")
    tell(f"  {compared:,} worlds that were taken for one seen before were compared with it")
    tell(f"  {len(cells)} different answers of the table were met")
    figures: list[tuple[str, object]] = [
        ("worlds searched", worlds),
        ("steps checked", steps),
        ("worlds compared with the one that they were taken for", compared),
        ("different answers of the table met", len(cells)),
    ]
    return Part(holds, figures)


def proved(tell: Tell) -> Part:
    began = time.perf_counter()
    proof = prove()
    tell("")
    tell("Proof: any time, any tokens, any number of clients")
    tell(
        f"  {proof.worlds} shapes of a record, {proof.cases} kinds of step, {proof.ways:,} ways through the code, "
        f"{proof.promises:,} conditions: "
        f"{'hold' if proof.refutation is None else proof.refutation} ({time.perf_counter() - began:.1f} s)"
    )
    figures: list[tuple[str, object]] = [("ways through the code proved", proof.ways), ("conditions", proof.promises)]
    return Part(proof.refutation is None, figures)


def exchanged(tell: Tell) -> Part:
    """Every cell of the table for every other cell of its column."""
    unnoticed, tried = [], 0
    for swap in swaps():
        tried += 1
        with swapped(swap):
            if prove(verbs={swap.verb}, states={STATES[swap.row]}).refutation is None:
                unnoticed.append(str(swap))
    holds = set(unnoticed) == EQUIVALENT
    tell(
        f"  {tried} tables with one cell exchanged: {tried - len(unnoticed)} refuted, "
        f"{len(unnoticed)} {'equivalent' if holds else f'NOT ALL EQUIVALENT: {unnoticed}'}"
    )
    return Part(holds, [("tables with one cell exchanged, refuted", tried - len(unnoticed))])


def refuted(tell: Tell) -> Part:
    tell("")
    tell("Mutants: one rule broken, refuted by a history and by z3")
    caught = 0
    for name, mutant in MUTANTS.items():
        history, refutation = history_of(mutant), refute(mutant.rules)
        caught += history is not None and refutation is not None
        tell("")
        tell(f"  {name}")
        tell("    NO HISTORY BREAKS IT" if history is None else "\n".join(story(history)))
        tell(
            "    Z3 DOES NOT REFUTE IT"
            if refutation is None
            else f"    z3: {refutation.verb} on {refutation.shape} ✗ {refutation.promise}"
        )
    return Part(caught == len(MUTANTS), [("mutants refuted, by a history and by z3", f"{caught} of {len(MUTANTS)}")])


def history_of(mutant: Mutant) -> Violation | None:
    """The shortest that ends in harm to a user, or at least in a broken promise."""
    return search(scenario(mutant.scenario), mutant.rules, only=HARMS if mutant.harm else None).violation


def story(violation: Violation) -> Iterator[str]:
    for number, line in enumerate(violation.history, start=1):
        yield f"    {number}. {line}"
    yield f"       ✗ {violation.promise} ({violation.scenario})"
