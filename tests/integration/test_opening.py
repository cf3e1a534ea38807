"""The first calls of a client open its store together: one that fails or is cancelled does not affect the others."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Once, StoreUnavailable
from onceward.errors import Stopping
from onceward.protocol.ports import Store
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.postgres import PostgresStore
from onceward.stores.redis import RedisStore
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.connection import SQLiteConnection
from onceward.stores.sqlite.private_file import create_private_file
from tests.clients import TOO_LONG, Backend
from tests.moved_time import in_thread
from tests.servers.postgres import URL, schema_of
from tests.servers.proxy import HOLD, SWALLOW_REQUEST, Proxy
from tests.servers.redis import shared

STEPS = 12  # of the event loop, until the first caller is cancelled: before, during and after the store is opened

THREADS = 8

on_every_store = pytest.mark.parametrize(
    "backend", ["memory", "sqlite", "postgres", "valkey", "firestore"], indirect=True
)


async def answer(key: str) -> str:
    await asyncio.sleep(0)
    return key


@pytest.mark.finding("N68")
@on_every_store
async def test_a_cancelled_first_call_does_not_affect_the_others(backend: Backend) -> None:
    for step in range(STEPS):
        async with AsyncOnce(backend.open(), fingerprint="none") as once:
            calls = [asyncio.create_task(once.run(f"{step} {number}", answer, f"{number}")) for number in range(4)]
            for _ in range(step):
                await asyncio.sleep(0)
            calls[0].cancel()
            results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), TOO_LONG)
            assert results[1:] == ["1", "2", "3"]
            assert await once.run(f"{step} later", answer, "later") == "later"


@pytest.mark.finding("N68")
@on_every_store
def test_first_calls_of_threads_open_the_store_together(backend: Backend) -> None:
    for turn in range(STEPS):
        with Once(backend.open(), fingerprint="none") as once:
            together = threading.Barrier(THREADS)

            def call(number: int, once: Once = once, together: threading.Barrier = together, turn: int = turn) -> str:
                together.wait(TOO_LONG)
                return once.run(f"{turn} {number}", str, number)

            calls = [in_thread(call, number) for number in range(THREADS)]
            assert [one.result(TOO_LONG) for one in calls] == [str(number) for number in range(THREADS)]


@pytest.mark.finding("N68")
@on_every_store
def test_opening_an_open_store_again_does_not_affect_its_calls(backend: Backend) -> None:
    store, runtime, reopened = backend.open(), ThreadRuntime(), threading.Event()
    run(store.open(runtime))

    def read_meanwhile() -> None:
        while not reopened.is_set():
            run(store.read([b"0" * 32], timeout=TOO_LONG))

    readers = [in_thread(read_meanwhile) for _ in range(2)]  # fewer than a pool has connections
    try:
        for _ in range(STEPS):
            run(store.read([b"1" * 32], timeout=TOO_LONG))
            run(store.open(runtime))
    finally:
        reopened.set()
    for reader in readers:
        reader.result(TOO_LONG)
    run(store.close())


@pytest.fixture(params=["postgres", "valkey"])
def proxied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Proxy, Store]]:
    """A proxy, and a store that is not open yet and connects through it."""
    if request.param == "postgres":
        server: Any = request.getfixturevalue("postgres")
        with Proxy("127.0.0.1", server.port) as proxy:
            url = os.environ[URL].replace(f":{server.port}", f":{proxy.port}")
            yield proxy, PostgresStore(url, schema=schema_of(tmp_path), migrate=True)
    else:
        with Proxy("127.0.0.1", shared().port) as proxy:
            yield proxy, RedisStore(shared().url(port=proxy.port), prefix=f"opening/{tmp_path.name}")


@pytest.mark.finding("N68")
def test_a_failed_first_call_of_a_thread_does_not_affect_the_others(proxied: tuple[Proxy, Store]) -> None:
    proxy, store = proxied
    with Once(store) as once:
        proxy.next(HOLD)
        first = in_thread(once.run, "first", str, 1)
        proxy.await_struck()
        assert in_thread(once.run, "second", str, 2).result(TOO_LONG) == "2"
        proxy.refuse()
        proxy.reset_all()
        with pytest.raises(StoreUnavailable):
            first.result(TOO_LONG)
        proxy.accept()
        assert once.run("third", str, 3) == "3"


@pytest.mark.finding("N68")
async def test_a_failed_first_call_of_a_task_does_not_affect_the_others(proxied: tuple[Proxy, Store]) -> None:
    proxy, store = proxied
    async with AsyncOnce(store) as once:
        proxy.next(HOLD)
        first = asyncio.create_task(once.run("first", answer, "1"))
        await asyncio.to_thread(proxy.await_struck)
        assert await asyncio.wait_for(once.run("second", answer, "2"), TOO_LONG) == "2"
        proxy.refuse()
        proxy.reset_all()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(first, TOO_LONG)
        proxy.accept()
        assert await once.run("third", answer, "3") == "3"


@pytest.mark.finding("N68")
def test_a_caller_that_cannot_open_a_file_does_not_close_it_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "once.db"
    blocking = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    blocking.execute("BEGIN EXCLUSIVE")
    store, together, limits = SQLiteStore(path), threading.Barrier(2), iter([0.5, TOO_LONG])
    run_alone = SQLiteConnection.run

    def run_together(connection: SQLiteConnection, _: float, *work: Any) -> Any:
        limit = next(limits)
        together.wait(TOO_LONG)  # both callers are opening
        return run_alone(connection, time.monotonic() + limit, *work)

    monkeypatch.setattr(SQLiteConnection, "run", run_together)
    callers = [in_thread(run, store.open(ThreadRuntime())) for _ in range(2)]
    [failed], [other] = wait(callers, TOO_LONG, FIRST_COMPLETED)
    blocking.execute("ROLLBACK")
    blocking.close()
    assert isinstance(failed.exception(), StoreUnavailable)
    assert other.exception(TOO_LONG) is None
    monkeypatch.undo()
    longer = 3 * TOO_LONG  # with the same timeout again, a call does not check whether the store is open
    assert run(store.read([b"0" * 32], timeout=longer))[0].record is None
    run(store.close())


def test_waiting_for_another_caller_that_opens_the_file_ends_at_the_open_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, opening, go = SQLiteStore(tmp_path / "once.db"), threading.Event(), threading.Event()

    def create_slowly(path: str) -> None:
        opening.set()
        assert go.wait(TOO_LONG)
        create_private_file(path)

    monkeypatch.setattr("onceward.stores.sqlite.connection.create_private_file", create_slowly)
    first = in_thread(run, store.open(ThreadRuntime()))
    assert opening.wait(TOO_LONG)
    monkeypatch.setattr("onceward.stores.sqlite.connection.OPEN_TIMEOUT", 0.1)
    second = in_thread(run, store.open(ThreadRuntime()))
    try:
        with pytest.raises(StoreUnavailable, match="busy for too long"):
            second.result(TOO_LONG / 2)
    finally:
        go.set()
    first.result(TOO_LONG)
    run(store.close())


def test_the_first_call_gives_up_as_soon_as_any_other_if_the_server_does_not_answer(
    proxied: tuple[Proxy, Store],
) -> None:
    proxy, store = proxied
    proxy.always(SWALLOW_REQUEST)
    with Once(store) as once:
        since = time.monotonic()
        with pytest.raises(StoreUnavailable):
            once.run("first", str, 1)
        assert time.monotonic() - since < 20


def test_a_call_is_refused_if_its_client_is_closed_while_the_call_opens_the_store(
    proxied: tuple[Proxy, Store],
) -> None:
    proxy, store = proxied
    once = Once(store, on_store_down="run")
    ran: list[int] = []
    proxy.always(HOLD)
    first = in_thread(once.run, "first", ran.append, 1)
    proxy.await_struck()
    once.close(timeout=0)
    proxy.always(None)
    proxy.release()
    with pytest.raises(Stopping, match="closed"):
        first.result(TOO_LONG)
    assert ran == []
