"""`close` while calls are in flight: each call finishes or is released, and no key stays locked."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Once, OutcomeUnknown, StoreUnavailable
from onceward.errors import Stopping, StoreBroken
from onceward.protocol.ports import Filter, Store
from onceward.protocol.record import RecordState
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.sqlite.connection import SQLiteConnection
from tests.cli.calls import until
from tests.clients import TOO_LONG, Backend
from tests.heartbeats import refuse_to_sleep
from tests.integration.processes import elsewhere, in_a_forked_child
from tests.integration.test_opening import proxied as proxied  # noqa: PLC0414 (a fixture)
from tests.moved_time import in_thread
from tests.servers.proxy import LOSE_REPLY, Proxy

on_every_store = pytest.mark.parametrize(
    "backend", ["memory", "sqlite", "postgres", "valkey", "firestore"], indirect=True
)

CALLS = 60
ROUNDS = 12


class Work:
    """Counts what was run. `begun` is set when the first call has begun."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    def __call__(self, key: str) -> str:
        self.done[key] += 1
        return key

    async def slowly(self, key: str) -> str:
        await asyncio.sleep(0)
        return self(key)


def check(backend: Backend, work: Work, results: list[Any]) -> None:
    """Check that every call returned its value or Stopping, and that no record is PENDING."""
    odd = [one for one in results if not isinstance(one, str | Stopping)]
    assert odd == []
    returned = Counter(one for one in results if isinstance(one, str))
    assert returned == work.done, "what ran was recorded, and what was refused did not run"
    store = backend.open()
    run(store.open(ThreadRuntime()))
    page = run(store.scan(Filter(states=(RecordState.PENDING,)), cursor=None, limit=1000, timeout=10))
    assert [record.key for record in page.records if not record.released] == []
    run(store.close())


@pytest.mark.finding("N69")
@on_every_store
async def test_closing_an_async_client_finishes_or_releases_every_call_in_flight(backend: Backend) -> None:
    for turn in range(ROUNDS):
        once, work = AsyncOnce(backend.open(), lease="1h", fingerprint="none"), Work()
        await once.run(f"{turn} warm", work.slowly, f"{turn} warm")
        keys = [f"{turn} {number}" for number in range(CALLS)]
        calls = [asyncio.create_task(once.run(key, work.slowly, key)) for key in keys]
        for _ in range(turn):
            await asyncio.sleep(0)
        await once.close()
        results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), TOO_LONG)
        check(backend, work, [f"{turn} warm", *results])


@pytest.mark.finding("N69")
@on_every_store
def test_closing_a_sync_client_finishes_or_releases_every_call_in_flight(backend: Backend) -> None:
    with ThreadPoolExecutor(16) as pool:
        for turn in range(ROUNDS):
            once, work, begun = Once(backend.open(), lease="1h", fingerprint="none"), Work(), threading.Event()

            def call(key: str, once: Once = once, work: Work = work, begun: threading.Event = begun) -> Any:
                begun.set()
                try:
                    return once.run(key, work, key)
                except BaseException as error:
                    return error

            calls = [pool.submit(call, f"{turn} {number}") for number in range(CALLS)]
            assert begun.wait(TOO_LONG)
            once.close()
            check(backend, work, [one.result(TOO_LONG) for one in calls])


@on_every_store
def test_a_waiting_call_raises_stopping_when_its_client_stops(backend: Backend) -> None:
    once, waiting = Once(backend.open(), lease="1h", wait="1h"), threading.Event()
    once.subscribe(lambda event: waiting.set() if event.name == "waiting" else None)
    with ThreadPoolExecutor(1) as pool, once.claim("held"):
        caller = pool.submit(once.run, "held", int)
        assert waiting.wait(TOO_LONG)
        once.stop()
        assert isinstance(caller.exception(TOO_LONG), Stopping)
    once.close()


@pytest.mark.finding("N69")
@pytest.mark.parametrize("way", ["map", "imap"])
@on_every_store
def test_a_batch_releases_the_items_that_have_not_begun_when_its_client_stops(backend: Backend, way: str) -> None:
    once, work = Once(backend.open(), lease="1h"), Work()

    def stopping(key: str) -> str:
        if key == "1":
            once.stop()
        return work(key)

    outcomes = getattr(once, way)
    with pytest.raises(Stopping):
        list(outcomes(stopping, ["0", "1", "2", "3"], key="{key}", name="batch"))
    assert work.done == {"0": 1, "1": 1}
    check(backend, work, ["0", "1"])
    once.close()


@pytest.mark.finding("N69")
@pytest.mark.parametrize("way", ["map", "imap"])
@on_every_store
async def test_an_async_batch_releases_the_items_that_have_not_begun_when_its_client_stops(
    backend: Backend, way: str
) -> None:
    once, work = AsyncOnce(backend.open(), lease="1h"), Work()

    async def stopping(key: str) -> str:
        if key == "1":
            once.stop()
        return await work.slowly(key)

    with pytest.raises(Stopping):
        if way == "map":
            await once.map(stopping, ["0", "1", "2", "3"], key="{key}", name="batch")
        else:
            _ = [one async for one in once.imap(stopping, ["0", "1", "2", "3"], key="{key}", name="batch")]
    assert work.done == {"0": 1, "1": 1}
    check(backend, work, ["0", "1"])
    await once.close()


@pytest.mark.finding("N69")
def test_a_batch_that_outlives_its_client_runs_no_further_item(tmp_path: Path) -> None:
    once, work, begun, closed = Once(f"sqlite:///{tmp_path}/once.db"), Work(), threading.Event(), threading.Event()

    def slow(key: str) -> str:
        begun.set()
        assert closed.wait(TOO_LONG)
        return work(key)

    with ThreadPoolExecutor(1) as pool:
        caller = pool.submit(once.map, slow, ["0", "1"], key="{key}")
        assert begun.wait(TOO_LONG)
        once.close(timeout=0)
        closed.set()
        assert isinstance(caller.exception(TOO_LONG), Stopping)
    assert work.done == {"0": 1}


@pytest.mark.finding("N69")
@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("backend", ["sqlite", "postgres", "valkey", "firestore"], indirect=True)
def test_work_that_outlives_its_client_says_that_the_client_was_closed(
    backend: Backend, raises: bool, caplog: pytest.LogCaptureFixture
) -> None:
    once, begun, closed = Once(backend.open(), lease="1h"), threading.Event(), threading.Event()
    events: list[tuple[str, str]] = []
    once.subscribe(lambda event: events.append((event.name, event.error)) if event.error else None)

    def work() -> int:
        begun.set()
        closed.wait(TOO_LONG)
        if raises:
            raise LookupError
        return 1

    with ThreadPoolExecutor(1) as pool:
        caller = pool.submit(once.run, "slow", work)
        assert begun.wait(TOO_LONG)
        once.close(timeout=0)
        closed.set()
        raised = caller.exception(TOO_LONG)
    if raises:
        assert isinstance(raised, LookupError)
    else:
        assert isinstance(raised, OutcomeUnknown)
        assert "the client was closed before the work ended" in str(raised)
        assert raised.value == 1
    why = "the client was closed before the work ended; close(timeout=…) waits"
    assert events == [("settle_retried", why), ("unknown", why)]
    assert "does not respond" not in caplog.text
    assert "is not open" not in caplog.text


@pytest.mark.finding("N69")
def test_a_block_that_completes_its_claim_after_the_close_says_that_the_client_was_closed(tmp_path: Path) -> None:
    once = Once(f"sqlite:///{tmp_path}/once.db")
    with pytest.raises(OutcomeUnknown, match="the client was closed"), once.claim("slow") as claim:
        with ThreadPoolExecutor(1) as pool:  # in this thread, close would leave the store open for the block
            pool.submit(once.close, timeout=0).result(TOO_LONG)
        claim.complete(1)


@pytest.fixture
def never_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_to_sleep(monkeypatch)


@pytest.mark.usefixtures("never_sleeps")
@pytest.mark.parametrize("by_signal", [False, True])
@on_every_store
def test_work_that_closes_its_own_client_is_not_waited_for_and_is_recorded(backend: Backend, by_signal: bool) -> None:
    once, work = Once(backend.open(), lease="1h"), Work()

    def closing(key: str) -> str:
        if by_signal:
            signal.raise_signal(signal.SIGTERM)
        else:
            once.close()
        with pytest.raises(Stopping):
            once.run("another", work, "another")
        return work(key)

    before = signal.signal(signal.SIGTERM, lambda *_: once.close())
    try:
        check(backend, work, [once.run("order 7", closing, "order 7")])
    finally:
        signal.signal(signal.SIGTERM, before)
    once.close()
    with pytest.raises(Stopping, match="closed"):
        once.run("order 8", work, "order 8")


@pytest.mark.usefixtures("never_sleeps")
@on_every_store
async def test_async_work_that_closes_its_own_client_is_not_waited_for_and_is_recorded(backend: Backend) -> None:
    once, work = AsyncOnce(backend.open(), lease="1h"), Work()

    async def closing(key: str) -> str:
        await once.close()
        return await work.slowly(key)

    async with once.claim("outer"):
        assert await once.run("order 7", closing, "order 7") == "order 7"
    check(backend, work, ["order 7"])
    await once.close()


def test_a_forked_child_does_not_wait_for_the_calls_of_its_parents_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Once(f"sqlite:///{tmp_path}/once.db", fingerprint="none")
    claim = elsewhere(once.claim("order 7").__enter__)
    waiting = in_thread(once.run, "order 7", str)
    until(lambda: bool(once.engine.claims_in_flight))

    def child() -> None:
        refuse_to_sleep(monkeypatch)
        once.close()

    in_a_forked_child(child)
    claim.complete("done")
    assert waiting.result(TOO_LONG) == "done"
    once.close()


@pytest.mark.finding("N69")
def test_a_claim_that_got_no_answer_is_released_when_its_client_closes(
    proxied: tuple[Proxy, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.runtime.orphans.FIRST_PAUSE", 3600.0)  # the heartbeat checks only when it ends
    proxy, store = proxied
    once, work = Once(store, lease="1h"), Work()
    once.run("warm", str)
    proxy.always(LOSE_REPLY)
    with pytest.raises(StoreUnavailable):
        once.run("order 7", work, "order 7")
    proxy.always(None)
    once.close()
    assert work.done == {}
    with Once(store.clone(), on_running="raise") as other:
        assert other.run("order 7", work, "order 7") == "order 7"


@pytest.mark.parametrize("used", [True, False])
def test_a_client_with_an_async_client_closes_while_the_server_is_down(
    proxied: tuple[Proxy, Store], used: bool
) -> None:
    proxy, store = proxied
    once = Once(store)
    once.run("sync", str)
    twin = once.aio
    if used:
        asyncio.run(twin.run("async", Work().slowly, "async"))
    proxy.refuse()
    proxy.reset_all()
    once.close()
    once.close()


def test_a_client_closes_even_if_its_async_client_can_no_longer_open_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Once(f"sqlite:///{tmp_path}/once.db")
    asyncio.run(once.aio.run("async", Work().slowly, "async"))

    def fails(_: SQLiteConnection) -> None:
        raise StoreBroken("replaced")

    monkeypatch.setattr(SQLiteConnection, "open", fails)
    once.close()
    once.close()


@pytest.mark.finding("N69")
@pytest.mark.usefixtures("never_sleeps")
@on_every_store
async def test_closing_the_async_part_of_a_client_leaves_its_sync_part_alone(backend: Backend) -> None:
    once, work = Once(backend.open(), lease="1h", fingerprint="none"), Work()
    claim = await asyncio.to_thread(elsewhere, once.claim("running").__enter__)
    async with once.aio as part:
        assert await part.run("async", work.slowly, "async") == "async"
    with pytest.raises(Stopping, match="closed"):
        await part.run("late", work.slowly, "late")
    assert [hold.record.key for hold in once.heartbeat.held()] == ["running"]
    await asyncio.to_thread(claim.complete, "done")
    assert await asyncio.to_thread(once.run, "sync", work, "sync") == "sync"
    check(backend, work, ["async", "sync"])
    once.close()


def test_closing_does_not_open_a_store_that_was_never_used(tmp_path: Path) -> None:
    with Once(f"sqlite:///{tmp_path}/once.db") as once:
        assert once.aio is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.finding("N69")
def test_a_claim_that_fails_because_its_client_was_closed_runs_nothing(tmp_path: Path) -> None:
    url, work = f"sqlite:///{tmp_path / 'closing.db'}", Work()
    once = Once(url, on_store_down="run", lease="5s")
    once.run("warm", work, "warm")
    blocker = sqlite3.connect(tmp_path / "closing.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(once.run, "late", work, "late")
        until(lambda: bool(once.engine.claims_in_flight))
        once.close(timeout=0.1)
        with pytest.raises(Stopping, match="this client was closed"):
            call.result(TOO_LONG)
    blocker.close()
    assert work.done["late"] == 0


@pytest.mark.finding("N69")
def test_closing_ends_an_attempt_to_open_a_locked_file(tmp_path: Path) -> None:
    blocker = sqlite3.connect(tmp_path / "locked.db", isolation_level=None)
    blocker.execute("CREATE TABLE other (x)")
    blocker.execute("BEGIN EXCLUSIVE")
    once = Once(f"sqlite:///{tmp_path / 'locked.db'}")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(once.run, "key", str)
        until(lambda: bool(once.engine.claims_in_flight))
        time.sleep(0.1)  # until it tries to connect
        began = time.monotonic()
        once.close(timeout=0.1)
        assert time.monotonic() - began < 10, "an attempt to open takes up to 30 s"
        with pytest.raises(Stopping, match="this client was closed"):
            call.result(TOO_LONG)
    blocker.close()


@pytest.mark.finding("N69")
async def test_close_does_not_wait_for_a_lock_that_its_own_caller_holds(tmp_path: Path) -> None:
    once = AsyncOnce(f"sqlite:///{tmp_path}/once.db")
    lock = await once.try_lock("leader")
    async with asyncio.timeout(TOO_LONG):
        await once.close(timeout=10 * TOO_LONG)
    assert lock is not None
