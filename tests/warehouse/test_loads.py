"""Loads into real warehouses: once per load id, merged, and whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from onceward import ConfigurationError, InvalidKey, MissingKey, PayloadMismatch, StoreUnavailable
from onceward.errors import SourceError, StoreBroken
from onceward.warehouse import Table, Warehouse, open_warehouse
from onceward.warehouse.duck import DuckWarehouse
from onceward.warehouse.postgres import PostgresWarehouse
from onceward.warehouse.sqlite import SQLiteWarehouse
from onceward.warehouse.table import ColumnType
from tests.servers.postgres import Postgres

STATEMENTS = Table(
    name="statements",
    columns={"statement_id": "text", "at": "time", "score": "number", "passed": "boolean", "raw": "json"},
    key=("statement_id",),
)
USERS = Table(
    name="users",
    columns={"user_id": "text", "name": "text", "seen": "integer"},
    key=("user_id",),
    on_match="replace",
    newest_by="seen",
)
ONE = {"statement_id": "s1", "at": "2026-03-01T12:00:00Z", "score": 0.5, "passed": True, "raw": {"b": 1, "a": [None]}}
TWO = {"statement_id": "s2"}

Query = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture(params=["duckdb", "duckdb without an index", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "duckdb without an index":
        return f"duckdb:///{tmp_path}/house.duckdb?primary_key=no"
    if request.param != "postgres":
        return f"{request.param}:///{tmp_path}/house.{request.param}"
    server: Postgres = request.getfixturevalue("postgres")
    schema: str = request.getfixturevalue("schema")
    with psycopg.connect(server.url, autocommit=True) as connection:
        for table in ("statements", "users", "counted", "onceward_loads"):
            connection.execute(f"DROP TABLE IF EXISTS {schema}.{table}")
    return f"{server.url}?schema={schema}"


@pytest.fixture
def house(url: str) -> Iterator[Warehouse]:
    house = open_warehouse(url)
    house.prepare(STATEMENTS)
    house.prepare(USERS)
    yield house
    house.close()


@pytest.fixture
def query(house: Warehouse) -> Query:
    def ask(statement: str) -> list[tuple[Any, ...]]:
        if isinstance(house, DuckWarehouse | SQLiteWarehouse):
            found: list[tuple[Any, ...]] = house.connection.execute(statement).fetchall()
            return found
        assert isinstance(house, PostgresWarehouse)
        cursor = house._connect().execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    return ask


@pytest.mark.mission("D1", "D5", "C7")
def test_a_load_that_comes_again_does_nothing_and_answers_the_same(house: Warehouse, query: Query) -> None:
    first = house.load("batch 1", STATEMENTS, [ONE, TWO, ONE])
    assert (first.rows, first.duplicates, first.inserted, first.unchanged, first.replayed) == (3, 1, 2, 0, False)
    again = house.load("batch 1", STATEMENTS, [ONE, TWO, ONE])
    assert (again.rows, again.duplicates, again.inserted, again.replayed) == (3, 1, 2, True)
    assert query("SELECT count(*) FROM statements") == [(2,)]


@pytest.mark.mission("D1")
def test_a_statement_that_is_there_stays_as_it_is(house: Warehouse, query: Query) -> None:
    house.load("batch 1", STATEMENTS, [ONE])
    merged = house.load("batch 2", STATEMENTS, [ONE | {"score": 0.9}, TWO])
    assert (merged.inserted, merged.updated, merged.unchanged) == (1, 0, 1)
    assert query("SELECT statement_id, score FROM statements ORDER BY 1") == [("s1", 0.5), ("s2", None)]


def test_values_arrive_as_they_left(house: Warehouse, query: Query) -> None:
    house.load("batch 1", STATEMENTS, [ONE])
    seconds, raw = {
        DuckWarehouse: ('epoch("at")', "raw::VARCHAR"),
        SQLiteWarehouse: ("CAST(strftime('%s', at) AS REAL)", "raw"),
        PostgresWarehouse: ("extract(epoch FROM at)::float", "raw::text"),
    }[type(house)]
    [(score, passed, at, text)] = query(f"SELECT score, passed, {seconds}, {raw} FROM statements")
    assert (score, passed, at) == (0.5, True, 1_772_366_400.0)
    assert text.replace(" ", "") == '{"a":[null],"b":1}'


@pytest.mark.fault("F18")
def test_the_same_load_id_with_other_rows_is_a_mismatch(house: Warehouse, query: Query) -> None:
    house.load("batch 1", STATEMENTS, [ONE])
    with pytest.raises(PayloadMismatch, match="already used with other rows"):
        house.load("batch 1", STATEMENTS, [TWO])
    with pytest.raises(PayloadMismatch, match="into statements"):
        house.load("batch 1", USERS, [])
    assert query("SELECT statement_id FROM statements") == [("s1",)]


def test_if_the_id_alone_counts_other_rows_change_nothing(house: Warehouse, query: Query) -> None:
    house.load("batch 1", STATEMENTS, [ONE], fingerprint="none")
    assert house.load("batch 1", STATEMENTS, [TWO], fingerprint="none").replayed
    assert house.load("batch 1", STATEMENTS, [TWO]).replayed, "compared only if both sides have a fingerprint"
    assert query("SELECT statement_id FROM statements") == [("s1",)]


@pytest.mark.mission("D2", "C7")
def test_a_row_that_replaces_is_written_only_if_it_differs_and_is_not_older(house: Warehouse, query: Query) -> None:
    anna = {"user_id": "anna", "name": "Anna", "seen": 5}
    assert house.load("1", USERS, [anna]).inserted == 1
    same = house.load("2", USERS, [anna])
    assert (same.updated, same.unchanged) == (0, 1)
    assert house.load("3", USERS, [anna | {"name": "Anna B.", "seen": 6}]).updated == 1
    late = house.load("4", USERS, [anna | {"name": "late", "seen": 4}])
    assert (late.updated, late.unchanged) == (0, 1)
    assert query("SELECT name, seen FROM users") == [("Anna B.", 6)]
    assert house.load("5", USERS, [anna | {"name": None, "seen": 6}]).updated == 1, "NULL differs from a value"
    assert house.load("6", USERS, [anna | {"name": "Anna", "seen": 6}]).updated == 1


@pytest.mark.mission("D1", "D6")
def test_known_keys_are_found_by_one_query(house: Warehouse) -> None:
    house.load("1", STATEMENTS, [{"statement_id": f"s{n}"} for n in range(0, 100, 2)])
    assert house.known(STATEMENTS, [f"s{n}" for n in range(4)]) == {"s0", "s2"}
    assert house.known(STATEMENTS, []) == set()


def test_a_key_of_several_columns_is_a_tuple(house: Warehouse) -> None:
    pairs = Table(name="counted", columns={"day": "time", "n": "integer", "v": "text"}, key=("day", "n"))
    house.prepare(pairs)
    days = ["2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"]
    house.load("1", pairs, [{"day": day, "n": n, "v": "x"} for day in days for n in (1, 2)])
    assert house.known(pairs, [(days[0], 1), (days[1], 3)]) == {(days[0], 1)}
    with pytest.raises(InvalidKey, match="a key of counted is day, n"):
        house.known(pairs, ["x"])


@pytest.mark.mission("D5")
def test_a_load_that_fails_leaves_nothing_and_may_be_repeated(house: Warehouse, query: Query) -> None:
    strict = Table(name="counted", columns={"id": "text", "n": "integer"}, key=("id",))
    house.prepare(strict)
    if isinstance(house, PostgresWarehouse):
        house._connect().execute("ALTER TABLE counted ADD CHECK (n < 100)")
    else:
        assert isinstance(house, DuckWarehouse | SQLiteWarehouse)
        house.connection.execute("DROP TABLE counted")
        house.connection.execute("CREATE TABLE counted (id VARCHAR PRIMARY KEY, n BIGINT CHECK (n < 100))")
    with pytest.raises(SourceError, match="counted rejects a row"):
        house.load("1", strict, [{"id": "a", "n": 1}, {"id": "b", "n": 100}])
    assert query("SELECT count(*) FROM counted") == [(0,)]
    assert house.load("1", strict, [{"id": "a", "n": 1}]).inserted == 1, "the load id was not used up"


@pytest.mark.mission("D1")
def test_concurrent_loads_insert_each_row_once(url: str, house: Warehouse, query: Query) -> None:
    rows = [{"statement_id": f"s{n}"} for n in range(50)]
    inserted: list[int] = []
    errors: list[BaseException] = []
    line = threading.Barrier(4)

    def load(number: int) -> None:
        other = open_warehouse(url)
        try:
            line.wait(60)
            for turn in range(3):
                mine = rows if number % 2 else rows[::-1]
                inserted.append(other.load(f"load {number} {turn}", STATEMENTS, mine).inserted)
        except BaseException as error:
            errors.append(error)
        finally:
            other.close()

    pool = [threading.Thread(target=load, args=(number,)) for number in range(4)]
    for one in pool:
        one.start()
    for one in pool:
        one.join()
    assert errors == []
    assert sum(inserted) == 50
    assert query("SELECT count(*), count(DISTINCT statement_id) FROM statements") == [(50, 50)]


@pytest.mark.mission("D1")
def test_one_load_sent_concurrently_by_several_is_done_once(url: str, house: Warehouse, query: Query) -> None:
    answers: list[Any] = []
    line = threading.Barrier(4)

    def load() -> None:
        other = open_warehouse(url)
        try:
            line.wait(60)
            answers.append(other.load("the one", USERS, [{"user_id": "anna", "seen": 1}]))
        finally:
            other.close()

    pool = [threading.Thread(target=load) for _ in range(4)]
    for one in pool:
        one.start()
    for one in pool:
        one.join()
    assert sorted(answer.replayed for answer in answers) == [False, True, True, True]
    assert {answer.inserted for answer in answers} == {1}


def test_a_table_that_is_there_must_fit(house: Warehouse, url: str) -> None:
    with pytest.raises(ConfigurationError, match="lacks the columns: mode"):
        house.prepare(Table(name="users", columns={"user_id": "text", "mode": "text"}, key=("user_id",)))
    if url.endswith("primary_key=no"):
        return
    with pytest.raises(ConfigurationError, match="no unique index over name"):
        house.prepare(Table(name="users", columns={"user_id": "text", "name": "text"}, key=("name",)))


@pytest.mark.parametrize(
    ("there", "declared"), [("bigint", "number"), ("real", "number"), ("float", "integer"), ("timestamp", "time")]
)
def test_a_column_that_would_round_what_is_loaded_is_refused(
    house: Warehouse, query: Query, there: str, declared: ColumnType
) -> None:
    query("DROP TABLE IF EXISTS counted")
    query(f"CREATE TABLE counted (id text PRIMARY KEY, value {there})")
    table = Table(name="counted", columns={"id": "text", "value": declared}, key=("id",))
    with pytest.raises(ConfigurationError, match=f"would round: value \\({declared} into"):
        house.prepare(table)


@pytest.mark.parametrize("there", ["bigint", "numeric", "real", "date"])
def test_a_column_of_sqlite_that_would_make_a_number_of_a_text_is_refused(tmp_path: Path, there: str) -> None:
    """`0012` would become 12, which is the row of another document."""
    with closing(SQLiteWarehouse(f"sqlite:///{tmp_path}/house.db")) as house:
        house.connection.execute(f"CREATE TABLE counted (id text PRIMARY KEY, value {there}, untyped)")
        with pytest.raises(ConfigurationError, match="convert some texts to numbers"):
            house.prepare(Table(name="counted", columns={"id": "text", "value": "text"}, key=("id",)))
        house.prepare(Table(name="counted", columns={"id": "text", "untyped": "text"}, key=("id",)))
        with pytest.raises(ConfigurationError, match="SQLite does not support"):
            house.prepare(Table(name="main.counted", columns={"id": "text"}, key=("id",)))


@pytest.mark.parametrize("index", ["INDEX i ON counted (value)", "UNIQUE INDEX i ON counted (value) WHERE value > 'm'"])
def test_an_index_of_sqlite_that_does_not_make_all_rows_unique_is_no_key(tmp_path: Path, index: str) -> None:
    with closing(SQLiteWarehouse(f"sqlite:///{tmp_path}/house.db")) as house:
        house.connection.execute("CREATE TABLE counted (id text PRIMARY KEY, value text)")
        house.connection.execute(f"CREATE {index}")
        with pytest.raises(ConfigurationError, match="no unique index over value"):
            house.prepare(Table(name="counted", columns={"id": "text", "value": "text"}, key=("value",)))


def test_an_error_of_sqlite_is_reported(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(StoreBroken, match="not a SQLite database"):
        open_warehouse(f"sqlite:///{tmp_path}/text")
    with closing(open_warehouse(f"sqlite:///{tmp_path}/house.db")) as house:
        with pytest.raises(StoreBroken, match=r"no such table: users.*prepare\(table\): it creates the table"):
            house.load("1", USERS, [{"user_id": "anna"}])
        house.prepare(USERS)
        assert house.load("1", USERS, [{"user_id": "anna"}]).inserted == 1, "the load id was not used up"


def test_a_load_needs_an_id(house: Warehouse) -> None:
    with pytest.raises(MissingKey, match="needs an id"):
        house.load("", USERS, [])
    with pytest.raises(InvalidKey, match="lone surrogates"):
        house.load("\ud800", USERS, [])


def test_a_warehouse_that_is_open_elsewhere_says_so(tmp_path: Path) -> None:
    held = (
        "import sys, duckdb; c = duckdb.connect(sys.argv[1]); c.execute('CREATE TABLE x (i INT)');"
        " print('up', flush=True); sys.stdin.read()"
    )
    path = tmp_path / "held.duckdb"
    with subprocess.Popen(
        [sys.executable, "-c", held, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"up\n"
        with pytest.raises(StoreUnavailable, match="another process has it open"):
            open_warehouse(f"duckdb:///{path}")
        other.stdin.close()


@pytest.mark.parametrize("url", ["duckdb://", "duckdb:///", "sqlite://", "sqlite:///", "snowflake://x", "house.duckdb"])
def test_a_url_that_names_no_warehouse_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_warehouse(url)


@pytest.mark.mission("D5")
@pytest.mark.fault("F51")
def test_a_server_that_dies_means_not_loaded_and_the_same_load_repeated_is_one(own_postgres: Postgres) -> None:
    house = open_warehouse(own_postgres.url)
    house.prepare(USERS)
    own_postgres.kill()
    with pytest.raises(StoreUnavailable, match="may be repeated under the same id"):
        house.load("1", USERS, [{"user_id": "anna"}])
    own_postgres.start()
    assert house.load("1", USERS, [{"user_id": "anna"}]).inserted == 1
    assert house.load("1", USERS, [{"user_id": "anna"}]).replayed
    house.close()


STRUCK = """
import os, signal, sys
from onceward.warehouse import duck, open_warehouse, sqlite
from tests.warehouse.test_loads import USERS

house = open_warehouse(sys.argv[1])
house.prepare(USERS)

def die(*args):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "before the commit":
    duck.DuckTransaction.record = sqlite._SQLiteTransaction.record = die
loaded = house.load("1", USERS, [{"user_id": f"u{n}"} for n in range(100)])
if sys.argv[2] == "after the commit":
    die()
print(loaded.inserted, loaded.replayed, house.connection.execute("SELECT count(*) FROM users").fetchone()[0])
"""


@pytest.mark.mission("D5")
@pytest.mark.fault("F30", "F31")
@pytest.mark.parametrize(
    ("when", "answer"), [("before the commit", "100 False 100"), ("after the commit", "100 True 100")]
)
@pytest.mark.parametrize("engine", ["duckdb", "sqlite"])
def test_a_loader_that_is_killed_leaves_all_or_nothing_and_the_load_is_repeated(
    tmp_path: Path, engine: str, when: str, answer: str
) -> None:
    command = [sys.executable, "-c", STRUCK, f"{engine}:///{tmp_path}/house"]
    assert subprocess.run([*command, when], check=False, timeout=60).returncode == -signal.SIGKILL
    again = subprocess.run([*command, "never"], check=True, timeout=60, capture_output=True, text=True)
    assert again.stdout.strip() == answer
