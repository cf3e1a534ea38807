"""A call inside a transaction that the caller has opened on the record's own database: joined, refused or reported."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import AsyncOnce, ConfigurationError, Executed, Once, Replayed
from onceward.protocol.policy import OpenTransaction


class Shop:
    """A database with one table, and a client whose records are in the same file."""

    def __init__(self, path: Path, setting: OpenTransaction | None) -> None:
        self.file = path / "shop.db"
        url = f"sqlite:///{self.file}"
        self.once = Once(url) if setting is None else Once(url, open_transaction=setting)
        self.once.migrate()
        self.db = sqlite3.connect(self.file, isolation_level=None)
        self.db.execute("CREATE TABLE charges (order_id INTEGER)")
        self.once.add_transaction_finder(self.find)
        self.events: list[str] = []
        self.once.subscribe(lambda event: self.events.append(event.name))

        @self.once(key="charge:{order_id}")
        def charge(order_id: int) -> str:
            self.db.execute("INSERT INTO charges VALUES (?)", (order_id,))
            return f"receipt {order_id}"

        self.charge = charge

    def find(self) -> sqlite3.Connection | None:
        return self.db if self.db.in_transaction else None

    def rows(self) -> list[int]:
        return [row[0] for row in self.db.execute("SELECT order_id FROM charges ORDER BY order_id")]

    def close(self) -> None:
        self.db.close()
        self.once.close()


@pytest.fixture
def setting() -> OpenTransaction | None:
    return None


@pytest.fixture
def shop(tmp_path: Path, setting: OpenTransaction | None) -> Iterator[Shop]:
    one = Shop(tmp_path, setting)
    yield one
    one.close()


@pytest.mark.finding("N3")
def test_a_rollback_around_a_call_undoes_row_and_record_together(shop: Shop) -> None:
    shop.db.execute("BEGIN IMMEDIATE")
    assert shop.charge(7) == "receipt 7"
    shop.db.execute("ROLLBACK")
    assert shop.charge.read(7) is None
    shop.db.execute("BEGIN IMMEDIATE")
    assert isinstance(shop.charge.outcome(7), Executed)
    shop.db.execute("COMMIT")
    assert isinstance(shop.charge.outcome(7), Replayed)
    assert shop.rows() == [7]


@pytest.mark.finding("N3")
def test_run_and_map_join_too(shop: Shop) -> None:
    shop.db.execute("BEGIN IMMEDIATE")
    kinds = [type(one) for one in shop.once.map(shop.charge, [1, 2, 1])]
    shop.once.run("by hand", shop.charge.__wrapped__, 3)
    assert kinds == [Executed, Executed, Replayed]
    assert shop.rows() == [1, 2, 3]
    shop.db.execute("ROLLBACK")
    assert shop.rows() == []
    assert shop.charge.read(1) is None
    assert shop.once.read("by hand") is None


@pytest.mark.finding("N3")
def test_a_failure_of_joined_work_undoes_its_own_rows_only(shop: Shop) -> None:
    @shop.once(key="bad:{n}")
    def bad(n: int) -> None:
        shop.db.execute("INSERT INTO charges VALUES (?)", (n,))
        raise ValueError(n)

    shop.db.execute("BEGIN IMMEDIATE")
    shop.charge(1)
    with pytest.raises(ValueError, match="2"):
        bad(2)
    shop.db.execute("COMMIT")
    assert shop.rows() == [1]


@pytest.mark.finding("N3")
def test_a_block_cannot_join_and_is_refused(shop: Shop) -> None:
    shop.db.execute("BEGIN IMMEDIATE")
    with pytest.raises(ConfigurationError, match=r"cannot join.*once\.within"), shop.once.claim("order:7"):
        pytest.fail("the block must not run")
    shop.db.execute("ROLLBACK")
    with shop.once.claim("order:7"):
        shop.charge.__wrapped__(7)


@pytest.mark.finding("N3")
def test_work_whose_policy_needs_a_committed_claim_is_not_joined(shop: Shop) -> None:
    wire = shop.once(key="wire:{n}", after_crash="park", name="wire")(lambda n: n)
    shop.db.execute("BEGIN IMMEDIATE")
    with pytest.raises(ConfigurationError, match="after_crash='park' would have no effect"):
        wire(1)


@pytest.mark.finding("N3")
def test_work_that_leaves_its_own_transaction_open_is_not_recorded(shop: Shop) -> None:
    @shop.once(key="lazy:{n}", settle_timeout="1ms")
    def lazy(n: int) -> None:
        shop.db.execute("BEGIN")  # no write lock, so that the store can record the failure
        shop.db.execute("SELECT count(*) FROM charges")

    with pytest.raises(ConfigurationError, match="returned without committing"):
        lazy(1)
    shop.db.execute("ROLLBACK")
    entry = lazy.read(1)
    assert entry is not None
    assert entry.state == "FAILED"


@pytest.mark.finding("N3")
@pytest.mark.parametrize("setting", ["refuse"])
def test_refuse_raises_before_anything_happens(shop: Shop) -> None:
    shop.db.execute("BEGIN")
    for call in (shop.charge, lambda n: shop.once.map(shop.charge, [n])):
        with pytest.raises(ConfigurationError, match=r"is open around this call.*once\.within"):
            call(7)
    assert shop.rows() == []
    shop.db.execute("ROLLBACK")
    assert shop.charge(7) == "receipt 7"


@pytest.mark.finding("N3")
@pytest.mark.parametrize("setting", ["warn"])
def test_warn_reports_each_operation_once(shop: Shop) -> None:
    peek = shop.once(key="peek:{n}", name="peek")(lambda n: n)
    shop.db.execute("BEGIN")
    assert [peek(1), peek(2)] == [1, 2]
    assert shop.events.count("open_transaction") == 1
    assert shop.once.counts["open_transaction"] == 1
    with shop.once.claim("block"):
        pass
    assert shop.events.count("open_transaction") == 2


@pytest.mark.parametrize("setting", ["ignore"])
def test_ignore_neither_joins_nor_reports(shop: Shop) -> None:
    peek = shop.once(key="peek:{n}", name="peek")(lambda n: n)
    shop.db.execute("BEGIN")
    assert peek(1) == 1
    shop.db.execute("ROLLBACK")
    assert peek.read(1) is not None
    assert "open_transaction" not in shop.events


def test_a_lock_is_not_work_and_is_allowed(shop: Shop) -> None:
    shop.db.execute("BEGIN")
    with shop.once.lock("nightly"):
        pass


def test_a_removed_finder_is_not_asked(shop: Shop) -> None:
    asked: list[int] = []

    def find() -> None:
        asked.append(1)

    remove = shop.once.add_transaction_finder(find)
    shop.charge(1)
    before = len(asked)
    remove()
    remove()
    shop.charge(2)
    assert before
    assert len(asked) == before


@pytest.mark.finding("N3")
def test_an_async_client_joins_too(shop: Shop) -> None:
    async def charge(order_id: int) -> str:
        shop.db.execute("INSERT INTO charges VALUES (?)", (order_id,))
        return "receipt"

    async def main() -> list[Any]:
        async with AsyncOnce(f"sqlite:///{shop.file}") as once:
            once.add_transaction_finder(shop.find)
            shop.db.execute("BEGIN IMMEDIATE")
            await once.run("a", charge, 1)
            shop.db.execute("ROLLBACK")
            gone = await once.read("a")
            shop.db.execute("BEGIN IMMEDIATE")
            outcomes = await once.map(charge, [2, 3], key="{order_id}")
            shop.db.execute("COMMIT")
            return [gone, *map(type, outcomes)]

    assert asyncio.run(main()) == [None, Executed, Executed]
    assert shop.rows() == [2, 3]
