"""z3 finds no counterexample to the shipped table, for any time, any tokens and any number of clients; and it finds one
for each broken table.
"""

from __future__ import annotations

import pytest
import z3

from onceward.protocol.record import RecordState
from onceward.protocol.requests import ClaimRequest, Release, Verdict
from onceward.protocol.transitions import Cells, claim
from tests.proof.induction import VERBS, broken, cases, passed, prove, refute, solver_for
from tests.proof.invariant import alive, invariant
from tests.proof.logic import all_of, formula, negate
from tests.proof.mutants import MUTANTS
from tests.proof.paths import paths
from tests.proof.swaps import EQUIVALENT, STATES, Swap, swapped, swaps
from tests.proof.symbolic import shape, system_states
from tests.proof.system import SHIPPED, SystemState
from tests.unit.key_history import HOUR, LEASE, Key

SYSTEMS = {shape(system): system for system in system_states()}


@pytest.mark.mission("A3", "A7")
@pytest.mark.rival(1, 20, 22)
@pytest.mark.fault("F32", "F40", "F41", "F42", "F44", "F53", "F66")
def test_every_step_of_the_shipped_table_keeps_the_invariant_and_every_promise() -> None:
    proof = prove()
    assert proof.refutation is None
    assert proof.shapes == len(SYSTEMS) > 20
    assert proof.ways > 5_000
    assert proof.promises > 100_000


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_premises_of_the_proof_can_be_satisfied(name: str) -> None:
    """Each shape of a record is possible, with two past owners or a live one, and each kind of step can be taken."""
    system = SYSTEMS[name]
    solver = solver_for(system)
    one, other = system.grants
    both = all_of(one.issued, other.issued, one.token != other.token)
    assert solver.check(formula(both)) == z3.sat
    if system.record is not None and system.record.state is RecordState.PENDING:
        assert solver.check(formula(all_of(both, alive(system, one), negate(system.jumped)))) == z3.sat
    taken = set()
    for verb, call in cases(SHIPPED, system):
        ways = [all_of(*conditions, *premises) for conditions, (premises, _, _) in paths(call)]
        if any(solver.check(formula(way)) == z3.sat for way in ways):
            taken.add(verb)
    verbs = {verb for steps in VERBS.values() for verb in steps}
    assert verbs - taken <= {"purge"}, "purge deletes only expired records"


def test_the_exception_for_a_clock_that_runs_ahead_is_needed() -> None:
    """If the clock runs ahead, leases end before their owners expect it. Fencing is proved without this exception."""
    system = SYSTEMS["PENDING, rerun, no retry_at/end"]

    def unnoticed() -> tuple[list[object], SystemState | None, list[tuple[str, object]]]:
        premises, later, promises = passed(system)
        assert later is not None
        return premises, later._replace(jumped=system.jumped), promises

    found, _, _ = broken(solver_for(system), unnoticed)
    assert found in {"no owner believes in a longer lease than the store's", "at most one live owner"}


def test_the_invariant_is_about_every_shape() -> None:
    for system in system_states():
        assert all(condition is not False for _, condition in invariant(system))


@pytest.mark.rival(1, 22)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_refuted_by_z3(name: str) -> None:
    assert refute(MUTANTS[name].rules) is not None


@pytest.mark.parametrize("verb", Cells._fields)
def test_no_cell_of_the_table_can_be_exchanged_unnoticed(verb: str) -> None:
    tried = [swap for swap in swaps() if swap.verb == verb]
    unnoticed = {str(swap) for swap in tried if not noticed(swap)}
    assert unnoticed == {name for name in EQUIVALENT if f" / {verb}: " in name}
    assert len(tried) > 10


def noticed(swap: Swap) -> bool:
    with swapped(swap):
        return prove(verbs={swap.verb}, states={STATES[swap.row]}).refutation is not None


@pytest.mark.fault("F68")
def test_after_a_restore_tokens_grow_once_the_clock_is_past_the_last_one_that_was_lost() -> None:
    """The proof shows that no token is below the store's time. If the clock is also set back, nothing is promised."""
    key = Key()
    key.settle(Release, key.claim(b"a"))
    backup = key.is_
    key.now += HOUR
    lost = key.claim(b"b")
    restored = ClaimRequest(b"id", "s", "k", b"c", LEASE)
    later, verdict = claim(backup, restored, key.now + 1)
    assert verdict is Verdict.ACQUIRED
    assert later.token > lost.token
    set_back, _ = claim(backup, restored, key.now - HOUR // 2)
    assert set_back.token < lost.token
