"""A transaction of the caller's on SQLite that keeps their own calls from writing: said at once, and what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onceward import AsyncOnce, Once
from onceward.errors import StoreUnavailable

IN_ITS_OWN_WAY = "open around this call .* use tx.run or tx.call"


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


def test_a_call_with_a_lease_inside_of_a_block_is_told_that_the_block_is_in_its_way(
    url: str, shop: sqlite3.Connection
) -> None:
    with Once(url, lease="300ms") as once:
        with once.within(shop) as tx:
            with pytest.raises(StoreUnavailable, match=IN_ITS_OWN_WAY):
                once.run("k", lambda: "never")
            with pytest.raises(StoreUnavailable, match=IN_ITS_OWN_WAY):
                tx.run("outer", lambda: once.run("inner", lambda: "never"))
            assert tx.run("k", lambda: "done") == "done"
        shop.execute("COMMIT")
        assert once.run("k", lambda: "again") == "done"
        assert once.run("behind it", lambda: "free") == "free"


async def test_so_is_one_that_is_awaited(url: str, shop: sqlite3.Connection) -> None:
    async def never() -> None:
        raise AssertionError("it was begun")

    async with AsyncOnce(url, lease="300ms") as once:
        async with once.within(shop):
            with pytest.raises(StoreUnavailable, match=IN_ITS_OWN_WAY):
                await once.run("k", never)
        shop.execute("ROLLBACK")


def test_another_writer_is_not_taken_for_ones_own(url: str, shop: sqlite3.Connection) -> None:
    with Once(url, lease="300ms") as once:
        with once.within(shop):
            pass
        with pytest.raises(StoreUnavailable) as caught:  # the block is left, the transaction is not over
            once.run("k", lambda: "never")
    assert "tx.run" not in str(caught.value)


def test_a_file_that_is_not_set_up_yet_is_told_to_be_opened_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceward.stores.sqlite.link.OPENING", 0.2)
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as shop:
        shop.execute("BEGIN IMMEDIATE")
        shop.execute("CREATE TABLE orders (id INTEGER)")
        with (
            Once(f"sqlite:///{tmp_path}/new.db") as once,
            pytest.raises(StoreUnavailable, match=r"open it before: once.migrate\(\)"),
            once.within(shop),
        ):
            pass
