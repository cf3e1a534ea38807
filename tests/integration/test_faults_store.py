"""Stores that are down, paused, full of waiters, or whose answers get lost on the way."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AsyncOnce,
    Executed,
    Once,
    OutcomeUnknown,
    Replayed,
    State,
    StoreBroken,
    StoreFull,
    StoreUnavailable,
    Unknown,
    VersionSkew,
)
from onceward.errors import StoreError
from onceward.stores.sqlite import SQLiteStore
from tests.faces import AsyncFace, Colour, Face, Place
from tests.faulty import FaultyPlace, FaultyStore, Wire


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def faulty(place: Place, colour: Colour, wire: Wire) -> Iterator[Face]:
    """A client of each colour on each store, reached by the wire."""
    behind = FaultyPlace(place, wire)
    face = Face(behind) if colour == "blocking" else AsyncFace(behind)
    yield face
    wire.heal()
    face.close()


class Effect:
    """Work that counts how often it really happened."""

    def __init__(self, result: Any = "sent") -> None:
        self.times = 0
        self._result = result
        self.__name__ = self.__qualname__ = "effect"

    def __call__(self) -> Any:
        self.times += 1
        return self._result


# ── F50: down at claim ──


@pytest.mark.fault("F50")
def test_a_store_that_is_down_closes_the_door_by_default(faulty: Face, wire: Wire) -> None:
    effect = Effect()
    wire.lose_requests("claim")
    with pytest.raises(StoreUnavailable):
        faulty.run("order 7", effect)
    with pytest.raises(StoreUnavailable), faulty.claim("order 8"):
        effect()
    with pytest.raises(StoreUnavailable):
        faulty.map(effect_of_item, ["order 9"])
    assert effect.times == 0
    assert not faulty.keeper._holds
    assert faulty.told("unprotected") == []
    wire.heal()
    assert faulty.run("order 7", effect) == "sent"


def effect_of_item(item: str) -> None:
    pytest.fail("must not run")


@pytest.mark.fault("F50")
def test_failing_quickly_a_store_that_is_down_is_asked_three_times_and_no_more(faulty: Face, wire: Wire) -> None:
    wire.lose_requests("claim")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        faulty.run("order 7", Effect())
    assert wire.calls["claim"] == 3
    assert len(set(wire.nonces["claim"])) == 1, "the same nonce each time: an earlier one may have been granted"
    assert time.monotonic() - began < 2


@pytest.mark.fault("F50")
def test_running_without_protection_must_be_declared_and_is_loud(
    faulty: Face, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    effect = Effect()
    reckless = faulty.another(on_store_down="run")
    wire.lose_requests("claim")
    outcome = reckless.outcome("order 7", effect)
    assert isinstance(outcome, Executed)
    assert (outcome.value, outcome.reason, effect.times) == ("sent", "unprotected", 1)
    assert [event.key for event in reckless.told("unprotected")] == ["order 7"]
    loud = [record for record in caplog.records if "unprotected" in record.getMessage()]
    assert [record.levelno for record in loud] == [logging.ERROR]
    assert "order 7" in loud[0].getMessage()
    wire.heal()
    assert reckless.outcome("order 7", effect).executed, "nothing was recorded, so nothing protects it now"


@pytest.mark.fault("F50")
def test_a_failure_of_unprotected_work_is_the_callers(faulty: Face, wire: Wire) -> None:
    reckless = faulty.another(on_store_down="run")
    wire.lose_requests("claim")

    def breaks() -> None:
        raise ConnectionError("no route")

    with pytest.raises(ConnectionError):
        reckless.run("order 7", breaks)


@pytest.mark.fault("F50")
@pytest.mark.parametrize("error", [StoreFull, StoreBroken])
def test_a_store_that_is_full_or_broken_closes_the_door_too(faulty: Face, error: type[StoreError]) -> None:
    store = faulty.once.store

    async def refuse(*_: object, **__: object) -> Any:
        raise error("no")

    store.inner = type(
        "Refusing", (), {"claim": staticmethod(refuse), "open": store.inner.open, "close": store.inner.close}
    )()
    effect = Effect()
    with pytest.raises(error):
        faulty.run("order 7", effect)
    assert effect.times == 0


@pytest.mark.fault("F50", "F67")
def test_a_record_of_a_newer_version_is_never_run_unprotected(sqlite_face: Face) -> None:
    """The store is not down: it holds something that we must not touch."""
    effect = Effect()
    reckless = sqlite_face.another(on_store_down="run")
    reckless.run("order 7", effect)
    with closing(sqlite3.connect(sqlite_face.place.path)) as connection, connection:
        connection.execute("UPDATE onceward_records SET min_reader = 99")
    with pytest.raises(VersionSkew):
        reckless.run("order 7", effect)
    assert effect.times == 1


# ── F51: down at complete ──


@pytest.mark.fault("F51")
def test_a_store_that_is_down_at_completion_is_asked_until_it_is_back(faulty: Face, wire: Wire) -> None:
    effect = Effect()
    wire.lose_requests("settle", 4)
    outcome = faulty.outcome("order 7", effect)
    assert isinstance(outcome, Executed)
    assert wire.calls["settle"] == 5
    assert len(set(wire.nonces["settle"])) == 1
    assert set(wire.nonces["settle"]) == set(wire.nonces["claim"])
    assert len(faulty.told("settle_retried")) == 4
    assert faulty.outcome("order 7", effect).replayed
    assert effect.times == 1


@pytest.mark.fault("F51")
def test_a_completion_that_is_never_answered_is_unknown_with_the_value_and_no_false_success(
    faulty: Face, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    effect = Effect({"receipt": 7})
    worker = faulty.another(settle_timeout="80ms", lease="10m")
    wire.lose_requests("settle")
    outcome = worker.outcome("order 7", effect)
    assert isinstance(outcome, Unknown)
    assert (outcome.value, outcome.lost) == ({"receipt": 7}, False)
    with pytest.raises(OutcomeUnknown) as unknown:
        outcome.unwrap()
    assert unknown.value.value == {"receipt": 7}
    assert len(worker.told("unknown")) == 1
    assert worker.told("completed") == []
    assert [record.levelno for record in caplog.records if record.getMessage().startswith("unknown")] == [logging.ERROR]
    assert not worker.keeper._holds, "it must lapse: only then `after_crash` can decide"
    wire.heal()
    entry = worker.read("order 7")
    assert entry.state is State.PENDING
    worker.clock.advance("11m")
    again = worker.outcome("order 7", effect)
    assert (again.kind, again.attempt, effect.times) == ("executed", 2, 2)


@pytest.mark.fault("F51")
def test_the_patience_for_a_completion_is_one_lease_unless_declared(faulty: Face, wire: Wire) -> None:
    worker = faulty.another(lease="200ms")
    wire.lose_requests("settle")
    began = time.monotonic()
    assert isinstance(worker.outcome("order 7", Effect()), Unknown)
    assert 0.15 < time.monotonic() - began < 1.5


@pytest.mark.fault("F51")
def test_a_block_whose_completion_is_never_answered_raises_outcome_unknown(faulty: Face, wire: Wire) -> None:
    worker = faulty.another(settle_timeout="50ms")
    wire.lose_requests("settle")
    with pytest.raises(OutcomeUnknown), worker.claim("order 7"):
        pass
    with pytest.raises(OutcomeUnknown) as unknown, worker.claim("order 8") as claim:
        claim.complete("receipt")
    assert unknown.value.value == "receipt"
    assert not worker.keeper._holds


@pytest.mark.fault("F51")
def test_a_failure_that_cannot_be_recorded_still_reaches_the_caller(faulty: Face, wire: Wire) -> None:
    worker = faulty.another(settle_timeout="50ms")
    wire.lose_requests("settle")

    def breaks() -> None:
        raise ConnectionError("no route")

    with pytest.raises(ConnectionError):
        worker.run("order 7", breaks)
    assert [event.reason for event in worker.told("unknown")] == ["failure not recorded"]
    assert not worker.keeper._holds


@pytest.mark.fault("F51")
def test_a_store_that_is_down_for_the_whole_work_does_not_lose_its_result(wire: Wire, place: Place) -> None:
    """Neither renewals nor the first completions get through; then it comes back, and nobody has taken over."""
    with Once(FaultyPlace(place, wire).open(), lease="300ms", settle_timeout="5s") as once:

        def slow() -> str:
            wire.lose_requests("renew")
            wire.lose_requests("settle")
            time.sleep(0.4)
            threading.Timer(0.2, wire.heal).start()
            return "sent"

        outcome = once.outcome("order 7", slow)
        assert (outcome.kind, outcome.attempt) == ("executed", 1)
        assert once.outcome("order 7", slow).value == "sent"


# ── F53: replies lost ──


@pytest.mark.fault("F53")
@pytest.mark.rival(20)
@pytest.mark.parametrize("times", [1, 2])
def test_a_claim_whose_reply_was_lost_is_recognised_as_our_own(faulty: Face, wire: Wire, times: int) -> None:
    effect = Effect()
    wire.lose_replies("claim", times)
    outcome = faulty.outcome("order 7", effect)
    assert (outcome.kind, outcome.attempt, effect.times) == ("executed", 1, 1)
    assert wire.calls["claim"] == times + 1
    assert len(set(wire.nonces["claim"])) == 1


@pytest.mark.fault("F53")
def test_a_batch_whose_reply_was_lost_runs_each_item_once(faulty: Face, wire: Wire) -> None:
    runs: list[int] = []

    def counted(item: int) -> int:
        runs.append(item)
        return item

    worker = faulty.another(wait="5s", lease="10m")
    wire.lose_replies("claim", 1)
    answer = worker.start(worker.map, counted, [1, 2, 3])
    outcomes = answer.result(15)
    assert [outcome.unwrap() for outcome in outcomes] == [1, 2, 3]
    assert sorted(runs) == [1, 2, 3]


@pytest.mark.fault("F53")
@pytest.mark.parametrize("times", [1, 3])
def test_a_completion_whose_reply_was_lost_is_repeated_and_fine(faulty: Face, wire: Wire, times: int) -> None:
    effect = Effect()
    wire.lose_replies("settle", times)
    assert isinstance(faulty.outcome("order 7", effect), Executed)
    assert wire.calls["settle"] == times + 1
    assert isinstance(faulty.outcome("order 7", effect), Replayed)
    assert effect.times == 1


@pytest.mark.fault("F53")
def test_a_failure_whose_reply_was_lost_is_repeated_and_counts_once(faulty: Face, wire: Wire) -> None:
    def breaks() -> None:
        raise ConnectionError("no route")

    wire.lose_replies("settle", 1)
    with pytest.raises(ConnectionError):
        faulty.run("order 7", breaks)
    entry = faulty.read("order 7")
    assert (entry.state, entry.attempt) == (State.FAILED, 1)


@pytest.mark.fault("F53")
def test_a_parking_whose_reply_was_lost_is_repeated_and_fine(faulty: Face, wire: Wire) -> None:
    careful = faulty.another(after_crash="park")

    def breaks() -> None:
        raise ConnectionError("no route")

    wire.lose_replies("settle", 1)
    with pytest.raises(ConnectionError):
        careful.run("order 7", breaks)
    assert careful.read("order 7").state is State.PARKED
    assert len(careful.told("parked")) == 1


@pytest.mark.fault("F53")
def test_a_renewal_whose_reply_was_lost_costs_nothing(faulty: Face, wire: Wire) -> None:
    with faulty.claim("order 7", lease="10m") as claim:
        faulty.clock.advance("3m")
        wire.lose_replies("renew", 1)
        faulty.heartbeat()
        claim.check()
        faulty.clock.advance("1m")
        faulty.heartbeat()
        faulty.clock.advance("9m")
        claim.check()
    assert len(faulty.told("renewal_failed")) == 1
    assert faulty.told("lost") == []


@pytest.mark.fault("F53")
def test_every_reply_of_every_verb_lost_once_still_gives_one_effect(faulty: Face, wire: Wire) -> None:
    effect = Effect()
    for verb in ("claim", "settle", "renew"):
        wire.lose_replies(verb, 1)
    outcome = faulty.outcome("order 7", effect)
    assert (outcome.kind, outcome.attempt) == ("executed", 1)
    assert faulty.outcome("order 7", effect).replayed
    assert effect.times == 1


# ── F52, F56: a writer that does not let go ──


@pytest.mark.fault("F52", "F56")
def test_an_open_transaction_of_somebody_else_ends_in_a_typed_error_within_the_deadline(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    with Once(SQLiteStore(path), lease="300ms") as once, closing(sqlite3.connect(path, isolation_level=None)) as theirs:
        assert once.run("before", Effect()) == "sent"
        theirs.execute("BEGIN IMMEDIATE")
        effect = Effect()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="another writer"):
            once.run("order 7", effect)
        assert time.monotonic() - began < 1.5
        assert effect.times == 0
        assert once.outcome("before", Effect()).replayed, "replays need no lock"
        theirs.execute("ROLLBACK")
        assert once.run("order 7", effect) == "sent"


@pytest.mark.fault("F52", "F56")
async def test_an_open_transaction_of_somebody_else_does_not_block_the_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    async with AsyncOnce(SQLiteStore(path), lease="600ms") as once:
        assert await once.read("before") is None
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as theirs:
            theirs.execute("BEGIN IMMEDIATE")
            ticks: list[float] = []

            async def heartbeat() -> None:
                while True:
                    ticks.append(time.monotonic())
                    await asyncio.sleep(0.01)

            beating = asyncio.create_task(heartbeat())

            async def effect() -> str:
                return "sent"

            with pytest.raises(StoreUnavailable):
                await once.run("order 7", effect)
            beating.cancel()
            theirs.execute("ROLLBACK")
        gaps = [later - earlier for earlier, later in pairwise(ticks)]
        assert len(ticks) > 20
        assert max(gaps) < 0.2


@pytest.mark.fault("F56", "F45")
def test_a_long_transaction_of_somebody_else_makes_leases_overdue_but_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "once.db"
    with Once(SQLiteStore(path), lease="300ms", settle_timeout="5s") as once:
        told: list[str] = []
        once.subscribe(lambda event: told.append(event.name))
        with once.claim("order 7") as claim, closing(sqlite3.connect(path, isolation_level=None)) as theirs:
            theirs.execute("BEGIN IMMEDIATE")
            time.sleep(0.6)
            theirs.execute("COMMIT")
            claim.complete("done")
        assert "overdue" in told
        assert "lost" not in told
        entry = once.read("order 7")
        assert entry is not None
        assert entry.value == "done"


# ── F69: a crowd ──


@pytest.mark.fault("F69")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_two_hundred_threads_that_wait_for_one_key_all_get_the_one_result(
    kind: str, tmp_path: Path, wire: Wire, clock: Any
) -> None:
    inner = Place(kind, tmp_path, clock).open()
    crowd = 200
    with Once(FaultyStore(inner, wire), wait="30s") as once:
        runs: list[int] = []
        line = threading.Barrier(crowd)
        answers: list[Any] = []

        def slow() -> str:
            runs.append(1)
            time.sleep(0.3)
            return "sent"

        def one() -> None:
            line.wait(30)
            try:
                answers.append(once.outcome("order 7", slow))
            except Exception as error:
                answers.append(error)

        threads = [threading.Thread(target=one) for _ in range(crowd)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(runs) == 1
        assert sorted({getattr(answer, "kind", repr(answer)) for answer in answers}) == ["executed", "replayed"]
        assert [answer.value for answer in answers] == ["sent"] * crowd
        assert wire.calls["claim"] <= crowd * 16, "waiters ask again with growing pauses, not in a spin"
        assert not getattr(inner, "_waiting", {}), "nobody is left on the list of those to wake"
    if isinstance(inner, SQLiteStore):
        assert not inner._link.is_open, "opened by many at once, and still closed by one"


@pytest.mark.fault("F69")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_thousand_tasks_that_wait_for_one_key_all_get_the_one_result(
    kind: str, tmp_path: Path, wire: Wire, clock: Any
) -> None:
    inner = Place(kind, tmp_path, clock).open()
    crowd = 1000
    async with AsyncOnce(FaultyStore(inner, wire), wait="60s") as once:
        runs: list[int] = []

        async def slow() -> str:
            runs.append(1)
            await asyncio.sleep(0.3)
            return "sent"

        outcomes = await asyncio.gather(*(once.outcome("order 7", slow) for _ in range(crowd)))
        assert len(runs) == 1
        assert [outcome.value for outcome in outcomes] == ["sent"] * crowd
        assert sum(outcome.executed for outcome in outcomes) == 1
        assert wire.calls["claim"] <= crowd * 16
        assert not getattr(inner, "_waiting", {})
    if isinstance(inner, SQLiteStore):
        assert not inner._link.is_open


@pytest.mark.fault("F69")
def test_waiters_are_woken_by_the_result_and_not_by_their_next_look(faulty: Face, wire: Wire) -> None:
    """The pauses have grown to half a second by then; being woken takes a few milliseconds."""
    worker = faulty.another(wait="30s")  # waits on the very store that settles, so that it can be woken
    go = threading.Event()

    def slow() -> str:
        assert go.wait(20)
        return "sent"

    first = worker.start(worker.run, "order 7", slow)
    until = time.monotonic() + 5
    while not wire.calls["claim"] and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(0.05)
    others = [worker.start(worker.run, "order 7", slow) for _ in range(6)]  # six are not all awake by chance
    time.sleep(1.5)
    asked = wire.calls["claim"]
    began = time.monotonic()
    go.set()
    assert [one.result(10) for one in (first, *others)] == ["sent"] * 7
    assert time.monotonic() - began < 0.2
    assert asked < 7 * 20
