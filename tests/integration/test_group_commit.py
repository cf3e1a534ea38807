"""Group commit as callers see it: many calls on one SQLite file that another writer keeps locked for a while."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Executed, Once, Unknown
from onceward.errors import OncewardError, Reentrant, StoreUnavailable
from onceward.protocol.requests import Answer, AnyRequest
from onceward.stores.clock import WallClock
from onceward.stores.sqlite import SQLiteStore
from tests.moved_time import TOO_LONG, in_thread
from tests.unit.batcher_calls import until

WORDS = [f"order {number}" for number in range(12)]


class RecordingStore(SQLiteStore):
    """Records which calls were begun, and may lose the replies to those that carry several requests."""

    loses_replies = False

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, **settings)
        self.begun: list[int] = []
        self.lost = 0

    async def send(self, requests: Sequence[AnyRequest], timeout: float) -> list[Answer]:
        self.begun.append(len(requests))
        answers = await super().send(requests, timeout)
        if self.loses_replies and len(requests) > 1:
            self.lost += 1
            raise StoreUnavailable("connection reset")
        return answers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "once.db"


@pytest.fixture
def store(path: Path) -> RecordingStore:
    return RecordingStore(path, synchronous="NORMAL")


class Writer:
    """Another writer's transaction on the file."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


@pytest.fixture
def effects() -> Counter[str]:
    return Counter()


def states(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    found = dict(connection.execute("SELECT key, coalesce(state, 'COMPLETED') FROM onceward_records"))
    connection.close()
    return found


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], Any]], None]]:
    before = signal.getsignal(signal.SIGUSR1)

    def install(action: Callable[[], Any]) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: action())

    yield install
    signal.signal(signal.SIGUSR1, before)


def counting(effects: Counter[str]) -> Callable[[str], Coroutine[Any, Any, str]]:
    async def work(word: str) -> str:
        effects[word] += 1
        return word

    return work


async def soon(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TOO_LONG):
        while not condition():  # noqa: ASYNC110 (the store has no event to wait for)
            await asyncio.sleep(0)


async def behind_a_writer(once: AsyncOnce, store: RecordingStore, path: Path, effects: Counter[str]) -> Any:
    """Start a call that waits for the writer, and queue all others behind it."""

    work = counting(effects)
    await once.run("warm", work, "warm")
    writer = Writer(path)
    begun = len(store.begun)
    first = asyncio.ensure_future(once.outcome("first", work, "first"))
    await soon(lambda: len(store.begun) > begun)
    others = [asyncio.ensure_future(once.outcome(word, work, word)) for word in WORDS]
    await soon(lambda: store.waiting_requests() == len(WORDS))
    return writer, first, others


@pytest.mark.fault("F28")
async def test_cancelled_tasks_leave_no_key_locked_and_affect_no_other_caller(
    store: RecordingStore, path: Path, effects: Counter[str]
) -> None:
    async with AsyncOnce(store) as once:
        writer, first, others = await behind_a_writer(once, store, path, effects)
        first.cancel()  # under way
        others[3].cancel()  # waits
        writer.end()
        outcomes = await asyncio.wait_for(asyncio.gather(first, *others, return_exceptions=True), TOO_LONG)
        gone = [outcomes[0], outcomes[4]]
        assert all(isinstance(one, asyncio.CancelledError) for one in gone)
        assert all(isinstance(one, Executed) for one in outcomes if one not in gone)
        found = states(path)
        assert "PENDING" not in found.values()
        assert effects == Counter(word for word in ["warm", *WORDS] if word != WORDS[3])
        for word in ("first", WORDS[3]):
            assert await once.run(word, counting(effects), word) == word
        assert set(effects.values()) == {1}, "a released key can be claimed immediately"


@pytest.mark.fault("F28")
async def test_any_caller_of_a_batch_may_be_cancelled(store: RecordingStore, path: Path, effects: Counter[str]) -> None:
    async with AsyncOnce(store) as once:
        writer, first, others = await behind_a_writer(once, store, path, effects)
        begun = len(store.begun)
        writer.end()
        await soon(lambda: len(store.begun) > begun)  # the batch was sent
        for one in others[::2]:
            one.cancel()
        outcomes = await asyncio.wait_for(asyncio.gather(first, *others, return_exceptions=True), TOO_LONG)
        done = {one.key for one in outcomes if isinstance(one, Executed)}
        assert done >= {"first", *WORDS[1::2]}
        assert store.begun[begun] == len(WORDS), "all of them in one batch"
        assert {word for word, state in states(path).items() if state == "PENDING"} == set()
        for word in set(WORDS) - done:
            assert isinstance(await once.outcome(word, counting(effects), word), Executed)
        assert effects == Counter(["warm", "first", *WORDS]), "a released key can be claimed immediately"


@pytest.mark.fault("F53")
async def test_replies_lost_for_whole_batches_are_resolved_by_nonce_for_tasks(
    store: RecordingStore, path: Path, effects: Counter[str]
) -> None:
    store.loses_replies = True
    async with AsyncOnce(store) as once:
        writer, first, others = await behind_a_writer(once, store, path, effects)
        writer.end()
        outcomes = await asyncio.wait_for(asyncio.gather(first, *others), TOO_LONG)
    assert all(isinstance(one, Executed) for one in outcomes)
    assert [one.attempt for one in outcomes] == [1] * len(outcomes)
    assert effects == Counter(["warm", "first", *WORDS])
    assert set(states(path).values()) == {"COMPLETED"}
    assert store.lost >= 1


@pytest.mark.fault("F53")
def test_replies_lost_for_whole_batches_are_resolved_by_nonce_for_threads(
    store: RecordingStore, path: Path, effects: Counter[str]
) -> None:
    store.loses_replies = True
    with Once(store) as once:
        once.run("warm", effects.update, ["warm"])
        writer = Writer(path)
        begun = len(store.begun)
        first = in_thread(once.outcome, "first", effects.update, ["first"])
        until(lambda: len(store.begun) > begun)
        others = [in_thread(once.outcome, word, effects.update, [word]) for word in WORDS]
        until(lambda: store.waiting_requests() == len(WORDS))
        writer.end()
        outcomes = [one.result(TOO_LONG) for one in [first, *others]]
    assert all(isinstance(one, Executed) for one in outcomes)
    assert [one.attempt for one in outcomes] == [1] * len(outcomes)
    assert effects == Counter(["warm", "first", *WORDS])
    assert set(states(path).values()) == {"COMPLETED"}
    assert store.lost >= 1


class Interrupted(BaseException):
    """What a signal handler raises."""


def interrupt() -> None:
    raise Interrupted


@pytest.mark.fault("F27")
@pytest.mark.parametrize("when", ["it waits", "it is under way"])
def test_an_interrupted_thread_leaves_no_key_locked_and_affects_no_other_caller(
    store: RecordingStore, path: Path, effects: Counter[str], on_signal: Callable[[Any], None], when: str
) -> None:
    with Once(store) as once:
        once.run("warm", effects.update, ["warm"])
        writer = Writer(path)
        begun = len(store.begun)
        others = [in_thread(once.outcome, WORDS[0], effects.update, [WORDS[0]])]
        until(lambda: len(store.begun) > begun)
        others += [in_thread(once.outcome, word, effects.update, [word]) for word in WORDS[1:]]
        until(lambda: store.waiting_requests() == len(WORDS) - 1)

        def send_signal() -> None:
            until(lambda: store.waiting_requests() == len(WORDS))
            if when == "it is under way":
                writer.end()
                second = Writer(path)
                signal.pthread_kill(main, signal.SIGUSR1)
                second.end()
            else:
                signal.pthread_kill(main, signal.SIGUSR1)
                writer.end()

        main = threading.get_ident()
        on_signal(interrupt)
        interrupter = in_thread(send_signal)
        with pytest.raises(Interrupted):
            once.run("interrupted", hang_on, effects)
        interrupter.result(TOO_LONG)
        assert all(isinstance(one.result(TOO_LONG), Executed) for one in others)
        until(lambda: "PENDING" not in states(path).values())
        assert set(effects.values()) == {1}


def hang_on(effects: Counter[str]) -> None:
    """Wait, so that the signal interrupts the effect if the claim was granted before it."""
    threading.Event().wait(TOO_LONG)
    effects["interrupted"] += 1


@pytest.mark.fault("F35")
def test_a_signal_handler_that_claims_inside_of_a_store_call_is_refused_instead_of_deadlocked(
    path: Path, on_signal: Callable[[Any], None]
) -> None:
    class SignallingClock(WallClock):
        armed = False

        def now(self) -> int:
            if self.armed:
                self.armed = False
                signal.raise_signal(signal.SIGUSR1)
            return super().now()

    clock = SignallingClock()
    refused: list[OncewardError] = []

    def claim() -> None:
        try:
            once.run("inner", int)
        except OncewardError as error:
            refused.append(error)

    with Once(SQLiteStore(path, clock=clock)) as once:
        once.run("warm", int)
        on_signal(claim)
        clock.armed = True
        assert once.run("outer", int) == 0
        assert [type(one) for one in refused] == [Reentrant]
        assert once.run("inner", int) == 0


def test_each_caller_has_a_deadline_of_its_own(store: RecordingStore, path: Path, effects: Counter[str]) -> None:
    with Once(store, lease="60s") as once:
        once.run("warm", effects.update, ["warm"])
        hurried = once.using(lease="300ms")
        writer = Writer(path)
        begun = len(store.begun)
        patient = in_thread(once.outcome, "patient", effects.update, ["patient"])
        until(lambda: len(store.begun) > begun)
        with pytest.raises(StoreUnavailable):
            hurried.run("hurried", effects.update, ["hurried"])
        assert not patient.done()
        writer.end()
        assert isinstance(patient.result(TOO_LONG), Executed)
        assert effects == Counter(["warm", "patient"])
        assert "hurried" not in states(path)


def test_loops_one_after_the_other_and_two_at_a_time_share_a_client(
    store: RecordingStore, effects: Counter[str]
) -> None:
    once = AsyncOnce(store)

    async def several(name: str) -> list[Any]:
        return await asyncio.gather(
            *(once.run(word, counting(effects), word) for word in (f"{name}/{n}" for n in range(20)))
        )

    for name in ("one", "two"):
        asyncio.run(several(name))
    barrier = threading.Barrier(2)

    def together(name: str) -> None:
        barrier.wait(TOO_LONG)
        asyncio.run(several(name))

    for both in [in_thread(together, name) for name in ("three", "four")]:
        both.result(TOO_LONG)
    asyncio.run(once.close(timeout=0))
    assert len(effects) == 80
    assert set(effects.values()) == {1}


@pytest.mark.parametrize("mode", ["threads", "tasks"])
def test_closing_while_others_wait_leaves_no_caller_waiting(
    store: RecordingStore, path: Path, effects: Counter[str], mode: str
) -> None:
    """Each caller learns whether its work ran; a result that could not be recorded any more is an outcome, too."""
    outcomes = (
        closed_in_threads(store, path, effects)
        if mode == "threads"
        else asyncio.run(closed_in_tasks(store, path, effects))
    )
    for word, outcome in zip(["first", *WORDS], outcomes, strict=True):
        assert isinstance(outcome, Executed | Unknown) == (effects[word] == 1), outcome
        assert isinstance(outcome, Executed | Unknown | OncewardError), outcome
    assert max(effects.values()) == 1
    done = {word for word, state in states(path).items() if state == "COMPLETED"}
    assert done >= {outcome.key for outcome in outcomes if isinstance(outcome, Executed)}


def closed_in_threads(store: RecordingStore, path: Path, effects: Counter[str]) -> list[Any]:
    once = Once(store)
    once.run("warm", effects.update, ["warm"])
    writer = Writer(path)
    begun = len(store.begun)
    first = in_thread(caught, once.outcome, "first", effects.update, ["first"])
    until(lambda: len(store.begun) > begun)
    others = [in_thread(caught, once.outcome, word, effects.update, [word]) for word in WORDS]
    until(lambda: store.waiting_requests() == len(WORDS))
    closing = in_thread(once.close, 0)
    writer.end()
    closing.result(TOO_LONG)
    return [one.result(TOO_LONG) for one in [first, *others]]


async def closed_in_tasks(store: RecordingStore, path: Path, effects: Counter[str]) -> list[Any]:
    once = AsyncOnce(store)
    writer, first, others = await behind_a_writer(once, store, path, effects)
    closing = asyncio.ensure_future(once.close(timeout=0))
    await asyncio.sleep(0)
    writer.end()
    await asyncio.wait_for(closing, TOO_LONG)
    return await asyncio.wait_for(asyncio.gather(first, *others, return_exceptions=True), TOO_LONG)


def caught(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except OncewardError as error:
        return error


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.fault("F34")
def test_a_child_that_was_forked_while_calls_waited_groups_by_itself(
    store: RecordingStore, path: Path, effects: Counter[str]
) -> None:
    with Once(store) as once:
        once.run("warm", effects.update, ["warm"])
        writer = Writer(path)
        begun = len(store.begun)
        first = in_thread(once.outcome, "first", effects.update, ["first"])
        until(lambda: len(store.begun) > begun)
        second = in_thread(once.outcome, "second", effects.update, ["second"])
        until(lambda: store.waiting_requests() == 1)
        ending = in_thread(writer.end)
        child = os.fork()
        if child == 0:
            os._exit(0 if once.run("child", int) == 0 else 1)
        ending.result(TOO_LONG)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert all(isinstance(one.result(TOO_LONG), Executed) for one in (first, second))
        assert set(states(path).values()) == {"COMPLETED"}
