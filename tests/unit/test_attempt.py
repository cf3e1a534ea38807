"""The table of the attempt's moves: `Attempt.move` allows these and no others, and each way leads to an end."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Once, OutcomeUnknown, RecordState, StoreUnavailable, applied, verify
from onceward.engine.attempt import ENDED, MOVES, NEW, NOT_BEGUN, UNPROTECTED, Attempt, AttemptState, IllegalMove
from onceward.errors import ClaimError
from onceward.results.codec import Codec
from onceward.stores import MemoryStore


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


def test_a_verification_that_is_interrupted_after_find_does_not_release_work_that_has_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`find` says that the effect happened; the interrupt comes while its result is encoded."""
    effects, found = [], applied("done")

    def work() -> str:
        effects.append("effect")
        raise TimeoutError

    once = Once(MemoryStore(), lease="1h", after_crash=verify(lambda: found))
    original = Codec.encode

    def encode(codec: Codec, value: Any, *place: Any) -> Any:
        return interrupted() if value == "done" else original(codec, value, *place)

    with monkeypatch.context() as patch:
        patch.setattr(Codec, "encode", encode)
        with pytest.raises(KeyboardInterrupt):
            once.run("order 7", work)
    entry = once.read("order 7")
    assert entry is not None
    assert entry.state is RecordState.PENDING, "the next claim verifies"
    assert effects == ["effect"]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_in_the_handler_does_not_wait_ten_minutes_for_a_store_that_is_down() -> None:
    class Down(MemoryStore):
        """Answers no settlement."""

        settlements = 0

        async def settle(self, *_: Any, **__: Any) -> Any:
            self.settlements += 1
            raise StoreUnavailable("down, as the test wants it")

    store = Down()
    with pytest.raises(KeyboardInterrupt):
        Once(store, lease="300ms").run("order 7", interrupted)
    assert store.settlements >= 2, "it is sent again once"


@pytest.mark.fault("F34")
def test_a_forked_child_that_leaves_a_batch_releases_no_key_of_its_parent(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/once.db", lease="1h")

    def work(number: int) -> str:
        if number == 0:
            child = os.fork()
            if child == 0:
                raise SystemExit(0)
            os.waitpid(child, 0)
            states = [once.read(f"item:{one}", name="work") for one in range(3)]
            assert [entry.state if entry else None for entry in states] == [RecordState.PENDING] * 3
        return str(number)

    try:
        outcomes = once.map(work, range(3), key="item:{number}", name="work")
    except SystemExit:
        os._exit(0)  # the child
    assert [one.kind for one in outcomes] == ["executed"] * 3


async def test_a_claim_that_is_completed_twice_at_once_is_completed(tmp_path: Path) -> None:
    async with AsyncOnce(f"sqlite:///{tmp_path}/once.db") as once:
        async with once.claim("order 7") as claim:
            first, second = await asyncio.gather(claim.complete(1), claim.complete(1), return_exceptions=True)
        assert first is None
        assert isinstance(second, ClaimError)
        entry = await once.read("order 7")
    assert entry is not None
    assert entry.state is RecordState.COMPLETED


async def test_a_lock_that_is_released_twice_at_once_is_released(tmp_path: Path) -> None:
    async with AsyncOnce(f"sqlite:///{tmp_path}/once.db") as once:
        lock = await once.lock("sync").acquire()
        await asyncio.gather(lock.release(), lock.release())
        assert await once.try_lock("sync") is not None


def test_an_unconfirmed_completion_is_repeated_with_its_own_value() -> None:
    class Down(MemoryStore):
        """Answers no settlement while `down` is set."""

        down = True

        async def settle(self, *args: Any, **how: Any) -> Any:
            if self.down:
                raise StoreUnavailable("down, as the test wants it")
            return await super().settle(*args, **how)

    store = Down()
    once = Once(store, settle_timeout=timedelta(microseconds=1))
    with once.claim("order 7") as claim:
        with pytest.raises(OutcomeUnknown):
            claim.complete(42)
        store.down = False
    entry = once.read("order 7")
    assert entry is not None
    assert (entry.state, entry.value) == (RecordState.COMPLETED, 42)
