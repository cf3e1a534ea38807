"""DuckDB tables that the user created, or changes while we work: with an index, rows or columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from onceward import ConfigurationError
from onceward.warehouse import Table
from onceward.warehouse.duck import DuckWarehouse
from onceward.warehouse.duck_url import parse

ORDERS = Table(
    name="orders",
    columns={"order": "text", "Line": "integer", "digest": "text"},
    key=("order", "Line"),
    same_by=("digest",),
)
USERS = Table(name="users", columns={"id": "text", "name": "text"}, key=("id",), on_match="replace")
MADE = 'CREATE TABLE orders ("order" VARCHAR, "Line" BIGINT, digest VARCHAR)'


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/house.duckdb"


@pytest.fixture
def house(path: str) -> Iterator[DuckWarehouse]:
    with closing(DuckWarehouse(parse(f"duckdb:///{path}"))) as house:
        yield house


@pytest.fixture
def unkeyed(path: str) -> Iterator[DuckWarehouse]:
    with closing(DuckWarehouse(parse(f"duckdb:///{path}?primary_key=no"))) as house:
        yield house


def test_a_unique_index_does_what_the_hint_for_a_table_without_a_key_asks_for(house: DuckWarehouse) -> None:
    house.query(MADE)
    with pytest.raises(ConfigurationError, match="add a primary key or a unique index over exactly these columns"):
        house.prepare(ORDERS)
    house.query('CREATE UNIQUE INDEX by_order ON orders ("LINE", "order")')
    house.prepare(ORDERS)
    row = {"order": "a", "Line": 1, "digest": "1"}
    assert house.merge(ORDERS, [row, {**row, "Line": 2}]).verdicts == ("inserted", "inserted")
    assert house.merge(ORDERS, [row, {**row, "digest": "2"}]).verdicts == ("same", "different")
    assert house.query("SELECT count(*) FROM onceward_turns") == [(0,)], "the index keeps them unique"


@pytest.mark.parametrize(
    "index",
    [
        'INDEX plain ON orders ("order", "Line")',
        'UNIQUE INDEX of_one ON orders ("order")',
        'UNIQUE INDEX of_more ON orders ("order", "Line", digest)',
        'UNIQUE INDEX of_another ON orders (upper("order"), "Line")',
        'UNIQUE INDEX elsewhere ON other ("order", "Line")',
    ],
)
def test_any_other_index_keeps_no_rows_apart(house: DuckWarehouse, index: str) -> None:
    house.query(MADE)
    house.query(MADE.replace("orders", "other"))
    house.query(f"CREATE {index}")
    with pytest.raises(ConfigurationError, match="no unique index over order, Line"):
        house.prepare(ORDERS)


def test_a_row_that_replaces_two_of_its_key_is_one_row_of_its_load(unkeyed: DuckWarehouse) -> None:
    unkeyed.query("CREATE TABLE users (id VARCHAR, name VARCHAR)")
    unkeyed.query("INSERT INTO users VALUES ('twice', 'old'), ('twice', 'older'), ('once', 'old')")
    unkeyed.prepare(USERS)
    rows = [{"id": "twice", "name": "new"}, {"id": "once", "name": "old"}, {"id": "fresh", "name": "new"}]
    for loaded in (unkeyed.load("1", USERS, rows), unkeyed.load("1", USERS, rows)):
        assert (loaded.inserted, loaded.updated, loaded.unchanged) == (1, 1, 1)
    assert unkeyed.query("SELECT DISTINCT name FROM users WHERE id = 'twice'") == [("new",)]


@pytest.mark.mission("D1")
def test_a_column_that_hides_where_rows_are_may_be_added_by_another_connection(
    unkeyed: DuckWarehouse, path: str
) -> None:
    unkeyed.prepare(ORDERS)
    row = {"order": "a", "Line": 1, "digest": "1"}
    assert unkeyed.merge(ORDERS, [row]).verdicts == ("inserted",)
    with closing(duckdb.connect(path)) as other:
        other.execute("ALTER TABLE orders ADD COLUMN rowid BIGINT")
    assert unkeyed.found(ORDERS, [("a", 1)], ["digest"]) == {("a", 1): ("1",)}
    assert unkeyed.merge(ORDERS, [row]).verdicts == ("same",)
    assert unkeyed.query("SELECT count(*) FROM orders") == [(1,)]
