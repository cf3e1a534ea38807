"""Any value that a batch accepts is stored unchanged in the warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward.warehouse import Table, Warehouse, open_warehouse
from onceward.warehouse.batch import Tuple, batch_of
from onceward.warehouse.duck import DuckWarehouse
from onceward.warehouse.sqlite import SQLiteWarehouse
from tests.servers.postgres import Postgres

VALUES = Table(
    name="any_values",
    columns={"id": "text", "i": "integer", "f": "number", "b": "boolean", "t": "time", "j": "json"},
    key=("id",),
)
READ = {
    "sqlite": "SELECT id, i, f, b, t, j FROM any_values",
    "duckdb": "SELECT id, i, f, b, epoch_us(t), j::VARCHAR FROM any_values",
    "postgres": "SELECT id, i, f, b, (extract(epoch FROM t) * 1000000)::bigint, j FROM any_values",
}

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
numbers = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts
rows = st.fixed_dictionaries(
    {
        "id": texts,
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | numbers,
        "b": st.none() | st.booleans(),
        "t": st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
        "j": plain | st.lists(plain, max_size=3) | st.dictionaries(texts, plain, max_size=3),
    }
)


class House:
    """A warehouse that is emptied for every example."""

    def __init__(self, kind: str, house: Warehouse) -> None:
        self.kind = kind
        self.house = house
        self.loads = 0
        house.prepare(VALUES)

    def run(self, sql: str) -> Any:
        if isinstance(self.house, DuckWarehouse | SQLiteWarehouse):
            return self.house.connection.execute(sql)
        connection: Any = self.house._connect()  # type: ignore[attr-defined]  # the other one
        return connection.execute(sql)

    def loaded(self, given_rows: list[dict[str, Any]]) -> set[Tuple]:
        self.run("DELETE FROM any_values")
        self.loads += 1
        self.house.load(f"load {self.loads}", VALUES, given_rows)
        return {(*row[:4], _time(row[4]), _json(row[5])) for row in self.run(READ[self.kind]).fetchall()}


def _time(value: Any) -> int | None:
    """Return microseconds; SQLite stores times as text."""
    since = datetime.fromisoformat(value) - datetime(1970, 1, 1, tzinfo=UTC) if isinstance(value, str) else value
    return since // timedelta(microseconds=1) if isinstance(since, timedelta) else since


def _json(value: Any) -> str | None:
    """Return JSON as one canonical text, because engines change blanks and order."""
    if value is None:
        return None
    return msgspec.json.encode(msgspec.json.decode(value) if isinstance(value, str) else value, order="sorted").decode()


@pytest.fixture(params=["duckdb", "sqlite", "postgres"], scope="module")
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    if request.param != "postgres":
        url = f"{request.param}://:memory:"
    else:
        server: Postgres = request.getfixturevalue("postgres")
        url = f"{server.url}?schema=any_values"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS any_values CASCADE")
            connection.execute("CREATE SCHEMA any_values")
    opened = open_warehouse(url)
    yield House(request.param, opened)
    opened.close()


@given(st.lists(rows, max_size=5))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_loaded_values_are_stored_unchanged(house: House, given_rows: list[dict[str, Any]]) -> None:
    if house.kind == "postgres":  # JSON strings stay text there, so that a psycopg str is already a JSON value
        given_rows = [row | {"j": [row["j"]]} for row in given_rows]
    expected = {(*row[:5], _json(row[5])) for row in batch_of(VALUES, given_rows).rows}
    assert house.loaded(given_rows) == expected
