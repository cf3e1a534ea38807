"""Runs the search and the proof, refutes the mutants, and prints the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .attempt_mutants import ATTEMPT_MUTANTS
from .attempt_search import NOT_MODELLED, legal_moves, search_attempts
from .attempt_world import ATTEMPT_SCENARIOS, DEEP_ATTEMPT_SCENARIOS, AttemptScenario, attempt_scenario
from .induction import prove, refute
from .mutants import MUTANTS, Mutant
from .scenarios import DEEP, SCENARIOS, Scenario, scenario
from .search import HARMS, Violation, search
from .swaps import EQUIVALENT, STATES, swapped, swaps

WriteLine = Callable[[str], None]


class Part(NamedTuple):
    """One part of the evidence: whether it holds, and its figures."""

    holds: bool
    figures: list[tuple[str, object]]


def run(*, deep: bool, write_line: WriteLine) -> Part:
    """Run everything. `deep`: three clients, the clock set back everywhere, denser samples: minutes, not seconds."""
    searches = [(one, DENSE if deep else SAMPLE) for one in SCENARIOS]
    if deep:
        searches += [(one, SAMPLE) for one in DEEP]
    attempts = (*ATTEMPT_SCENARIOS, *DEEP_ATTEMPT_SCENARIOS) if deep else ATTEMPT_SCENARIOS
    parts = [
        searched(searches, write_line),
        attempts_searched(attempts, DENSE if deep else SAMPLE, write_line),
        proved(write_line),
        exchanged(write_line),
        refuted(write_line),
        attempts_refuted(write_line),
    ]
    return Part(all(part.holds for part in parts), [figure for part in parts for figure in part.figures])


SAMPLE, DENSE = 100, 5  # of the states that count as already seen, every so many-th is compared with the earlier state


def searched(searches: list[tuple[Scenario, int]], write_line: WriteLine) -> Part:
    write_line(f"{'Search: every state that can be reached':<52}{'states':>10}{'steps':>12}{'seconds':>9}")
    states = steps = compared = 0
    cells: set[tuple[object, ...]] = set()
    holds = True
    for one, sample in searches:
        began = time.perf_counter()
        found = search(one, sample=sample)
        states, steps, compared = states + found.states, steps + found.steps, compared + found.compared
        cells |= set(found.cells)
        write_line(f"  {one.name:<50}{found.states:>10,}{found.steps:>12,}{time.perf_counter() - began:>9.1f}")
        if found.violation is not None:
            holds = False
            write_line("\n".join(history_lines(found.violation)))
    write_line(f"  {'in all':<50}{states:>10,}{steps:>12,}")
    write_line(f"  {compared:,} states that counted as already seen were compared with the earlier state")
    write_line(f"  {len(cells)} different answers of the table were seen")
    figures: list[tuple[str, object]] = [
        ("states searched", states),
        ("steps checked", steps),
        ("states compared with an equivalent state", compared),
        ("different answers of the table seen", len(cells)),
    ]
    return Part(holds, figures)


def attempts_searched(scenarios: tuple[AttemptScenario, ...], sample: int, write_line: WriteLine) -> Part:
    write_line("")
    write_line(f"{'Search: record and attempts together':<52}{'states':>10}{'steps':>12}{'seconds':>9}")
    states = steps = compared = 0
    moves = set(NOT_MODELLED)
    holds = True
    for one in scenarios:
        began = time.perf_counter()
        found = search_attempts(one, sample=sample)
        states, steps, compared = states + found.states, steps + found.steps, compared + found.compared
        moves |= set(found.moves)
        write_line(f"  {one.name:<50}{found.states:>10,}{found.steps:>12,}{time.perf_counter() - began:>9.1f}")
        if found.violation is not None:
            holds = False
            write_line("\n".join(history_lines(found.violation)))
    missing = legal_moves() - moves
    write_line(f"  {'in all':<50}{states:>10,}{steps:>12,}")
    write_line(f"  {compared:,} states that counted as already seen were compared with the earlier state")
    write_line(f"  {len(legal_moves()) - len(NOT_MODELLED) - len(missing)} of {len(legal_moves())} moves were made")
    for (start, end), why in NOT_MODELLED.items():
        write_line(f"    not {start} → {end}: {why}")
    figures: list[tuple[str, object]] = [
        ("states of record and attempts searched", states),
        ("steps of record and attempts checked", steps),
    ]
    return Part(holds and not missing, figures)


def proved(write_line: WriteLine) -> Part:
    began = time.perf_counter()
    proof = prove()
    write_line("")
    write_line("Proof: any time, any tokens, any number of clients")
    write_line(
        f"  {proof.shapes} shapes of a record, {proof.cases} kinds of step, {proof.ways:,} ways through the code, "
        f"{proof.promises:,} conditions: "
        f"{'hold' if proof.refutation is None else proof.refutation} ({time.perf_counter() - began:.1f} s)"
    )
    figures: list[tuple[str, object]] = [("ways through the code proved", proof.ways), ("conditions", proof.promises)]
    return Part(proof.refutation is None, figures)


def exchanged(write_line: WriteLine) -> Part:
    """Exchange every cell of the table for every other cell of its column."""
    unnoticed, tried = [], 0
    for swap in swaps():
        tried += 1
        with swapped(swap):
            if prove(verbs={swap.verb}, states={STATES[swap.row]}).refutation is None:
                unnoticed.append(str(swap))
    holds = set(unnoticed) == EQUIVALENT
    write_line(
        f"  {tried} tables with one cell exchanged: {tried - len(unnoticed)} refuted, "
        f"{len(unnoticed)} {'equivalent' if holds else f'NOT ALL EQUIVALENT: {unnoticed}'}"
    )
    return Part(holds, [("tables with one cell exchanged, refuted", tried - len(unnoticed))])


def refuted(write_line: WriteLine) -> Part:
    write_line("")
    write_line("Mutants: one rule broken, refuted by a history and by z3")
    caught = 0
    for name, mutant in MUTANTS.items():
        history, refutation = history_of(mutant), refute(mutant.rules)
        caught += history is not None and refutation is not None
        write_line("")
        write_line(f"  {name}")
        write_line("    NO HISTORY BREAKS IT" if history is None else "\n".join(history_lines(history)))
        write_line(
            "    Z3 DOES NOT REFUTE IT"
            if refutation is None
            else f"    z3: {refutation.verb} on {refutation.shape} ✗ {refutation.promise}"
        )
    return Part(caught == len(MUTANTS), [("mutants refuted, by a history and by z3", f"{caught} of {len(MUTANTS)}")])


def attempts_refuted(write_line: WriteLine) -> Part:
    write_line("")
    write_line("Mutants: one rule of the attempt broken, refuted by a history")
    caught = 0
    for name, mutant in ATTEMPT_MUTANTS.items():
        history = search_attempts(attempt_scenario(mutant.scenario), behaviour=mutant.behaviour).violation
        caught += history is not None
        write_line("")
        write_line(f"  {name}")
        write_line("    NO HISTORY BREAKS IT" if history is None else "\n".join(history_lines(history)))
    figure = ("mutants of the attempt refuted", f"{caught} of {len(ATTEMPT_MUTANTS)}")
    return Part(caught == len(ATTEMPT_MUTANTS), [figure])


def history_of(mutant: Mutant) -> Violation | None:
    """Return the shortest history that harms a user, or at least breaks a promise."""
    return search(scenario(mutant.scenario), mutant.rules, only=HARMS if mutant.harm else None).violation


def history_lines(violation: Violation) -> Iterator[str]:
    for number, line in enumerate(violation.history, start=1):
        yield f"    {number}. {line}"
    yield f"       ✗ {violation.promise} ({violation.scenario})"
