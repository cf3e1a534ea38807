"""What type checkers see of outcomes: however code distinguishes them, the result keeps its type. Never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never, assert_type

from onceward import AsyncOnce, Executed, Failed, Mismatch, Once, Outcome, Parked, Replayed, Running, Stale, Unknown


@dataclass
class Receipt:
    number: int


@Once("memory://")
def charge(order: str) -> Receipt:
    return Receipt(len(order))


@AsyncOnce("memory://")
async def send(order: str) -> Receipt:
    return Receipt(len(order))


def describe(outcome: Outcome[Receipt]) -> str:
    if isinstance(outcome, Executed):
        assert_type(outcome, Executed[Receipt])
        assert_type(outcome.value, Receipt)
        assert_type(outcome.unwrap(), Receipt)
        return f"executed at attempt {outcome.attempt}"
    if isinstance(outcome, Replayed):
        assert_type(outcome, Replayed[Receipt])
        assert_type(outcome.stored, bool)
        return "replayed"
    if isinstance(outcome, Failed):
        assert_type(outcome, Failed[Receipt])
        assert_type(outcome.retry_after, float | None)
        assert_type(outcome.exception, BaseException | None)
    return outcome.reason


def describe_every(outcome: Outcome[Receipt]) -> str:
    match outcome:
        case Executed(value=value) | Replayed(value=value):
            assert_type(value, Receipt | None)
            return "done"
        case Parked(exception=exception):
            assert_type(exception, BaseException | None)
            return "parked"
        case Failed() | Running() | Mismatch() | Stale() | Unknown():
            return outcome.reason
        case _:
            assert_never(outcome)


def describe_most(outcome: Outcome[Receipt]) -> str:
    match outcome:
        case Executed() | Replayed() | Parked() | Failed() | Running() | Mismatch() | Stale():
            return outcome.reason
        case _:
            assert_never(outcome)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


describe(Executed(key="A", value=Receipt(1)))
describe(charge.outcome("A"))
describe(Executed(key="A", value=1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
by_any_name: Outcome[Receipt] = Failed(key="A")
if isinstance(found := charge.outcome("A"), Executed):
    assert_type(found, Executed[Receipt])


async def awaited() -> None:
    outcome = await send.outcome("A")
    assert_type(outcome, Outcome[Receipt])
    if isinstance(outcome, Executed):
        assert_type(outcome, Executed[Receipt])
    if isinstance(outcome, Failed) and outcome.exception is not None:
        outcome.exception.add_note("of the order A")
        outcome.exception.no_such_thing()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
