"""A transaction of the caller on SQLite that blocks their own calls: an immediate error that says what to do."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, Once
from onceward.engine.joined import current_block
from onceward.errors import StoreFull, StoreUnavailable

BLOCKED_BY_ITSELF = "open around this call .* use tx.run or tx.call"


@pytest.fixture
def url(tmp_path: Path) -> str:
    with Once(f"sqlite:///{tmp_path}/shop.db") as once:
        once.migrate()
    return f"sqlite:///{tmp_path}/shop.db"


@pytest.fixture
def shop(url: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection


def test_a_call_with_a_lease_inside_of_a_block_gets_an_error_that_names_the_block(
    url: str, shop: sqlite3.Connection
) -> None:
    with Once(url, lease="300ms") as once:
        with once.within(shop) as tx:
            with pytest.raises(StoreUnavailable, match=BLOCKED_BY_ITSELF):
                once.run("k", lambda: "never")
            with pytest.raises(StoreUnavailable, match=BLOCKED_BY_ITSELF):
                tx.run("outer", lambda: once.run("inner", lambda: "never"))
            assert tx.run("k", lambda: "done") == "done"
        shop.execute("COMMIT")
        assert once.run("k", lambda: "again") == "done"
        assert once.run("behind it", lambda: "free") == "free"


async def test_an_awaited_call_with_a_lease_inside_of_a_block_gets_an_error_that_names_the_block(
    url: str, shop: sqlite3.Connection
) -> None:
    async def never() -> None:
        raise AssertionError("it was begun")

    async with AsyncOnce(url, lease="300ms") as once:
        async with once.within(shop):
            with pytest.raises(StoreUnavailable, match=BLOCKED_BY_ITSELF):
                await once.run("k", never)
        shop.execute("ROLLBACK")


def test_another_writer_is_not_mistaken_for_the_callers_own_block(url: str, shop: sqlite3.Connection) -> None:
    with Once(url, lease="300ms") as once:
        with once.within(shop):
            pass
        with pytest.raises(StoreUnavailable) as caught:  # the block has ended, the transaction has not
            once.run("k", lambda: "never")
    assert "tx.run" not in str(caught.value)


async def test_a_task_that_outlives_its_block_gets_an_error_that_does_not_name_the_block(
    url: str, shop: sqlite3.Connection
) -> None:
    """The connection is in a transaction again, which is unrelated to the task."""
    left = asyncio.Event()

    async def never() -> None:
        raise AssertionError("it was begun")

    async with AsyncOnce(url, lease="300ms") as once:

        async def later() -> None:
            await left.wait()
            await once.run("k", never)

        async with once.within(shop):
            task = asyncio.create_task(later())
        shop.execute("COMMIT")
        shop.execute("BEGIN IMMEDIATE")
        left.set()
        with pytest.raises(StoreUnavailable) as caught:
            await task
    assert "tx.run" not in str(caught.value)


def test_blocks_that_exit_in_another_context_do_not_accumulate(url: str, shop: sqlite3.Connection) -> None:
    def left_elsewhere() -> None:
        for _ in range(3):
            within = once.within(shop)
            within.__enter__()
            Context().run(within.__exit__, None, None, None)
        last = current_block.get()
        assert last is not None
        assert last.outer is None, "otherwise each block would keep all earlier ones alive, with their connections"
        with pytest.raises(StoreUnavailable) as caught:
            once.run("k", lambda: "never")
        assert "tx.run" not in str(caught.value)

    with Once(url, lease="300ms") as once:
        Context().run(left_elsewhere)


def test_a_block_that_exits_in_another_context_does_not_close_the_block_there(
    url: str, shop: sqlite3.Connection
) -> None:
    with Once(url, lease="300ms") as once:
        other = once.within(shop)
        copy_context().run(other.__enter__)
        with once.within(shop):
            other.__exit__(None, None, None)
            with pytest.raises(StoreUnavailable, match=BLOCKED_BY_ITSELF):
                once.run("k", lambda: "never")


def test_blocks_may_exit_in_any_order(url: str, shop: sqlite3.Connection) -> None:
    def crosswise() -> None:
        one, other = once.within(shop), once.within(shop)
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        with pytest.raises(StoreUnavailable, match=BLOCKED_BY_ITSELF):
            once.run("k", lambda: "never")
        other.__exit__(None, None, None)
        assert current_block.get() is None

    with Once(url, lease="300ms") as once:
        Context().run(crosswise)


def test_a_thread_that_continues_inside_the_block_gets_the_error_too(url: str) -> None:
    """As with `asyncio.to_thread`. That thread may not use the connection, so it must not be touched there."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as shop:
        shop.execute("BEGIN IMMEDIATE")
        with Once(url, lease="300ms") as once, once.within(shop), ThreadPoolExecutor(1) as pool:
            context = copy_context()
            task = pool.submit(lambda: context.run(once.run, "k", lambda: "never"))
            with pytest.raises(StoreUnavailable, match=BLOCKED_BY_ITSELF):
                task.result()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit came with 3.12")
def test_the_callers_savepoints_survive_the_error(url: str) -> None:
    connect: Any = sqlite3.connect  # for the types of 3.11
    with closing(connect(url.removeprefix("sqlite:///"), autocommit=False)) as shop, Once(url, lease="300ms") as once:
        with once.within(shop) as tx:
            tx.run("first", lambda: "done")
            shop.execute("SAVEPOINT mine")
            with pytest.raises(StoreUnavailable, match=BLOCKED_BY_ITSELF):
                once.run("k", lambda: "never")
            shop.execute("ROLLBACK TO mine")
        shop.rollback()


def test_other_store_errors_are_not_changed(
    url: str, shop: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any, **__: Any) -> None:
        raise StoreFull("there is no room on the disk")

    with Once(url, lease="300ms") as once, once.within(shop):
        monkeypatch.setattr(once.engine.store, "claim", full)
        with pytest.raises(StoreFull):
            once.run("k", lambda: "never")


def test_a_file_without_tables_raises_an_error_that_says_to_open_the_store_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.stores.sqlite.connection.OPEN_TIMEOUT", 0.2)
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as shop:
        shop.execute("BEGIN IMMEDIATE")
        shop.execute("CREATE TABLE orders (id INTEGER)")
        with (
            Once(f"sqlite:///{tmp_path}/new.db") as once,
            pytest.raises(StoreUnavailable, match=r"open the store earlier: call once.migrate\(\)"),
            once.within(shop),
        ):
            pass
