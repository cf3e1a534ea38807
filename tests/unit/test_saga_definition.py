"""What a saga may look like: what cannot keep its promise is refused when it is defined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from onceward import AsyncOnce, ConfigurationError, Once
from onceward.sagas import Step, StepContext
from onceward.sagas.definition import DEFAULT_ATTEMPTS, REQUIRED_ATTEMPTS, StepKind, exponential_delay, plan_of
from onceward.stores import MemoryStore


def do(step: StepContext) -> None: ...


async def do_async(step: StepContext) -> None: ...


def yields(step: StepContext) -> Iterator[int]:
    yield 1


async def yields_async(step: StepContext) -> AsyncIterator[int]:
    yield 1


UNDOABLE = Step("a", do, undo=do)
PIVOT = Step("p", do, kind="pivot")
LATER = Step("r", do, kind="retriable")


def test_the_kind_follows_from_the_undo() -> None:
    assert [step.kind for step in plan_of("s", [UNDOABLE, PIVOT, LATER])] == list(StepKind)


@pytest.mark.parametrize(
    "steps",
    [
        [UNDOABLE],
        [PIVOT],
        [LATER],
        [UNDOABLE, PIVOT],
        [PIVOT, LATER],
        [UNDOABLE, LATER, Step("s", do, kind="retriable")],
    ],
)
def test_these_orders_can_be_kept(steps: list[Step]) -> None:
    assert len(plan_of("s", steps)) == len(steps)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([], "no steps"),
        ([PIVOT, UNDOABLE], "a is compensatable and comes after p"),
        ([LATER, UNDOABLE], "a is compensatable and comes after r"),
        ([LATER, PIVOT], "p is pivot and comes after r"),
        ([PIVOT, Step("q", do, kind="pivot")], "p and q are both the pivot"),
        ([UNDOABLE, Step("a", do, undo=do)], "two steps are named 'a'"),
        ([Step("a", do)], "a has no undo"),
        ([Step("a", do, kind="compensatable")], "a is compensatable and needs an undo"),
        ([Step("a", do, undo=do, kind="pivot")], "an undo that would never be called"),
        ([Step("a", do, undo=do, kind="retriable")], "an undo that would never be called"),
        ([Step("a", do, kind="retriable", final=ValueError)], "none of its errors is final"),
        ([Step("a", do, kind="maybe")], "a cannot be 'maybe'"),  # type: ignore[arg-type]
        ([Step("a", 5, undo=do)], "do of a is not callable"),  # type: ignore[arg-type]
        ([Step("a", do, undo=yields)], "undo of a is a generator function"),
        ([Step("a", yields_async, undo=do)], "do of a is a generator function"),
        ([Step("", do, undo=do)], "'' is not a valid step name"),
        ([Step("a/b", do, undo=do)], "is not a valid step name"),
        ([Step("a" * 65, do, undo=do)], "is not a valid step name"),
        ([Step("a", do, undo=do, max_attempts=0)], "a: max_attempts"),
        ([Step("a", do, undo=do, undo_attempts=0)], "a: max_attempts"),
        ([Step("a", do, undo=do, after_crash="hope")], "after_crash cannot be 'hope'"),  # type: ignore[arg-type]
        ([Step("a", do, undo=do, final=5)], "final must be exception types"),  # type: ignore[arg-type]
        ([do], "is not a Step"),
        ([Step(f"a{n}", do, undo=do) for n in range(65)], "the maximum is 64"),
    ],
)
def test_this_is_refused_when_it_is_defined(steps: list[Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        plan_of("s", steps)


def test_what_must_succeed_has_more_attempts() -> None:
    plan = plan_of("s", [UNDOABLE, PIVOT, LATER, Step("s", do, kind="retriable", max_attempts=4)])
    assert [step.max_attempts for step in plan] == [DEFAULT_ATTEMPTS, DEFAULT_ATTEMPTS, REQUIRED_ATTEMPTS, 4]
    assert plan[0].undo_attempts == REQUIRED_ATTEMPTS


def test_pauses_grow_and_end() -> None:
    assert [exponential_delay(attempt) for attempt in (1, 2, 3, 100)] == [0.2, 0.4, 0.8, 30.0]


@pytest.mark.parametrize("choice", ["after_crash", "final", "not_applied", "max_attempts", "retry_delay"])
def test_settings_of_a_step_are_refused_on_the_saga(choice: str) -> None:
    with Once(MemoryStore()) as once, pytest.raises(ConfigurationError, match=f"{choice} is declared at a step"):
        once.saga("s", UNDOABLE, **{choice: 1})  # type: ignore[arg-type]


def test_without_a_key_a_saga_does_not_run() -> None:
    with Once(MemoryStore()) as once, pytest.raises(ConfigurationError, match="a saga has no on_missing_key"):
        once.saga("s", UNDOABLE, on_missing_key="run")  # type: ignore[call-arg]


@pytest.mark.parametrize("choice", ["on_running", "on_done"])
def test_a_saga_is_never_skipped(choice: str) -> None:
    with Once(MemoryStore()) as once, pytest.raises(ConfigurationError, match="cannot be 'skip'"):
        once.saga("s", UNDOABLE, **{choice: "skip"})  # type: ignore[arg-type]


def test_a_blocking_saga_has_no_async_steps_and_an_async_one_may_have_both() -> None:
    with Once(MemoryStore()) as once:
        with pytest.raises(ConfigurationError, match="step a is async"):
            once.saga("s", Step("a", do_async, undo=do))
        with pytest.raises(ConfigurationError, match="step a is async"):
            once.saga("s", Step("a", do, undo=do_async))
        assert "a (compensatable)" in repr(once.aio.saga("s", Step("a", do_async, undo=do)))

    async def main() -> None:
        async with AsyncOnce(MemoryStore()) as once:
            saga = once.saga("s", Step("a", do_async, undo=do), Step("b", do, kind="pivot"), key="s:{n}")
            assert await saga(n=1) == {"a": None, "b": None}

    asyncio.run(main())


def test_two_sagas_of_one_name_are_refused_and_a_name_is_needed() -> None:
    with Once(MemoryStore()) as once:
        once.saga("s", UNDOABLE)
        with pytest.raises(ConfigurationError, match="two sagas are named 's'"):
            once.saga("s", UNDOABLE)
        with pytest.raises(ConfigurationError, match="a saga needs a name"):
            once.saga("", UNDOABLE)
