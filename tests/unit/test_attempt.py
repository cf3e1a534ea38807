"""The table of the attempt's moves: `Attempt.move` allows these and no others, and each way leads to an end."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from onceward import AsyncOnce, Once, verify
from onceward.engine.attempt import ENDED, MOVES, NEW, NOT_BEGUN, UNPROTECTED, Attempt, AttemptState, IllegalMove


@pytest.fixture
def attempt() -> Attempt:
    once = Once("memory://", app="moves")
    return Attempt(once.engine, once.claim_job("key", "work", None, {}, {}))


@pytest.mark.parametrize(("start", "end"), list(product(AttemptState, AttemptState)), ids=str)
def test_a_move_is_in_the_table_or_raises(attempt: Attempt, start: AttemptState, end: AttemptState) -> None:
    attempt.state = start
    if end in MOVES[start]:
        attempt.move(end)
        assert attempt.state is end
    else:
        with pytest.raises(IllegalMove, match=f"from {start} to {end} "):
            attempt.move(end)
        assert attempt.state is start


@pytest.mark.parametrize("start", AttemptState)
def test_every_state_can_reach_an_end(start: AttemptState) -> None:
    reached, waiting = {start}, [start]
    while waiting:
        for state in MOVES[waiting.pop()] - reached:
            reached.add(state)
            waiting.append(state)
    assert reached & (ENDED | {UNPROTECTED})


def test_every_state_can_be_reached_and_nothing_leads_back_to_new() -> None:
    assert {end for ends in MOVES.values() for end in ends} == set(AttemptState) - {NEW}
    assert set(MOVES) == set(AttemptState)


def test_what_has_not_begun_has_not_ended_and_does_not_run() -> None:
    assert not NOT_BEGUN & (ENDED | {AttemptState.RUNNING, AttemptState.SETTLING, UNPROTECTED})


async def test_closing_a_call_while_it_verifies_does_not_release_work_that_has_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The effect may have happened, so the next call must verify it."""
    released: list[object] = []

    async def find(order: int) -> object:
        return await asyncio.Event().wait()

    async with AsyncOnce("memory://", app="moves") as once:

        @once(key="{order}", after_crash=verify(find))
        async def charge(order: int) -> None:
            raise ConnectionError("the reply was lost")

        monkeypatch.setattr(once.engine.heartbeat, "reconcile", lambda *claim: released.append(claim))
        call = charge(1)
        call.send(None)  # until `find` waits
        call.close()
    assert released == []
