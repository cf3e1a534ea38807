"""Running the shipped functions on symbols gives formulas that describe what the functions do, case by case."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import z3
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from onceward.protocol import transitions
from onceward.protocol.record import Record
from onceward.protocol.requests import Validity, Verdict
from tests.proof.facts import FLAGS, NUMBERS, TIMES, Fingerprint
from tests.proof.logic import Symbol, flag, number
from tests.proof.paths import paths
from tests.proof.symbolic import claims, renewals, resolutions, settlements, system_states

RECORDS = [system.record for system in system_states()]
REQUESTS: list[tuple[Callable[..., Any], Any]] = [
    *((transitions.claim, one) for one in claims()),
    *((transitions.renew, one) for one in renewals()),
    *((transitions.settle, one) for one in (*settlements(), *resolutions())),
]
BYTES = ("nonce", "digest")  # numbers for z3, bytes for the table; NO_OWNER is 0 and b""


@cache
def ways(record: int, request: int) -> list[tuple[list[Symbol], tuple[Record | None, Verdict]]]:
    apply, asked = REQUESTS[request]
    return list(paths(lambda: apply(RECORDS[record], asked, number("now"))))


@given(
    record=st.integers(0, len(RECORDS) - 1),
    request=st.integers(0, len(REQUESTS) - 1),
    values=st.lists(st.integers(0, 6), min_size=40, max_size=40),
    now=st.integers(0, 8),
)
def test_exactly_one_path_is_taken_and_it_returns_what_the_function_returns(
    record: int, request: int, values: list[int], now: int
) -> None:
    apply, asked = REQUESTS[request]
    solver = z3.Solver()
    solver.add(number("now").term == now)
    drawn = iter(values)
    before = RECORDS[record] and concrete(RECORDS[record], drawn, solver)
    expected, verdict = apply(before, concrete(asked, drawn, solver), now)
    assert solver.check() == z3.sat
    model = solver.model()
    taken = [end for conditions, end in ways(record, request) if all(holds(model, one) for one in conditions)]
    assert len(taken) == 1
    after, said = taken[0]
    assert said is verdict
    assert facts(after, model) == facts(expected, model)


def concrete(struct: Any, drawn: Any, solver: Any) -> Any:
    """Return the record or request with values in place of its symbols, and add the values to the solver."""
    found = {}
    for name, value in asdict(struct).items():
        if isinstance(value, Symbol):
            found[name] = draw(value, drawn, solver, as_bytes=name in BYTES)
        elif isinstance(value, Fingerprint):
            there, encoder, body = (
                draw(part, drawn, solver, as_bytes=False) for part in (value.there, value.encoder, value.body)
            )
            found[name] = bytes([encoder % 256, body]) if there else b""
        elif isinstance(value, Validity):
            found[name] = concrete(value, drawn, solver)
    return replace(struct, **found)


def draw(symbol: Symbol, drawn: Any, solver: Any, *, as_bytes: bool) -> Any:
    value: Any = next(drawn)
    if z3.is_bool(symbol.term):
        value = value % 2 == 1
    solver.add(symbol.term == value)
    return bytes([value]) if as_bytes and value else b"" if as_bytes else value


def holds(model: Any, condition: Symbol) -> bool:
    return bool(z3.is_true(model.eval(condition.term, model_completion=True)))


def facts(record: Record | None, model: Any) -> Any:
    if record is None:
        return None
    names = (*NUMBERS, *FLAGS, *TIMES)
    return record.state, record.after_crash, *(plain(getattr(record, name), model) for name in names)


def plain(value: Any, model: Any) -> Any:
    if isinstance(value, Symbol):
        value = model.eval(value.term, model_completion=True)
        return z3.is_true(value) if z3.is_bool(value) else value.as_long()
    return int.from_bytes(value) if isinstance(value, bytes) else value


def test_a_symbol_has_no_truth_value_outside_of_paths() -> None:
    with pytest.raises(TypeError, match="is not known"):
        bool(flag("anything"))


def test_paths_takes_each_path_once() -> None:
    def call() -> str:
        if number("a") > 3:
            return "large"
        return "small and odd" if flag("odd") else "small"

    assert sorted(end for _, end in paths(call)) == ["large", "small", "small and odd"]
