"""DuckDB in bounded memory: a limit that the URL sets, and tables whose rows are unique without an index."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError, StoreUnavailable
from onceward.warehouse import Table, open_warehouse
from onceward.warehouse import duck_merge as duck_merging
from onceward.warehouse.batch import RowBatch
from onceward.warehouse.duck import DuckWarehouse
from onceward.warehouse.duck_merge import CHUNK_BYTES, DuckTransaction
from onceward.warehouse.duck_url import parse

FACTS = Table(name="facts", columns={"id": "text", "digest": "text", "said": "text"}, key=("id",), same_by=("digest",))
COUNTED = "SELECT count(*), count(DISTINCT id) FROM facts"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"duckdb:///{tmp_path}/house.duckdb?primary_key=no"


@pytest.fixture
def house(url: str) -> Iterator[DuckWarehouse]:
    with closing(opened(url)) as house:
        yield house


def opened(url: str) -> DuckWarehouse:
    house = DuckWarehouse(parse(url))
    house.prepare(FACTS)
    return house


def fact(id: str, digest: str, said: str = "") -> dict[str, Any]:
    return {"id": id, "digest": digest, "said": said}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            "memory_limit=lots",
            "memory_limit=lots is not an amount of memory → write a number and a unit, such as 256MB or 2GiB",
        ),
        ("memory_limit=", "is not an amount of memory"),
        ("memory_limit=256", "a number and a unit"),
        ("memory_limit=0MB", "is not an amount of memory"),
        ("memory_limit=1\u0663MB", "is not an amount of memory"),
        ("memory_limit=1MB'%3B DROP TABLE facts", "is not an amount of memory"),
        ("threads=0", "threads=0 is not a number of threads → 1 or more"),
        ("threads=two", "is not a number of threads"),
        ("threads=1\u0663", "is not a number of threads"),
        ("primary_key=maybe", "neither yes nor no → yes: tables are created with an index"),
        (
            "memory=1GB&cores=2",
            "unknown settings in a DuckDB URL: cores, memory → the settings are: memory_limit, threads, primary_key",
        ),
    ],
)
def test_a_setting_that_is_wrong_is_explained(settings: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_warehouse(f"duckdb:///{tmp_path}/house.duckdb?{settings}")
    assert why in str(refused.value)
    assert not list(tmp_path.iterdir()), "no file was created"


def test_more_memory_than_can_be_counted_is_explained_and_the_file_is_let_go(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="999999999TB is not an amount of memory") as caught:
        open_warehouse(f"duckdb:///{tmp_path}/house.duckdb?memory_limit=999999999TB")
    assert_free(tmp_path / "house.duckdb")
    assert caught.value.__traceback__, "the exception keeps the failed connection alive"


def assert_free(file: Path) -> None:
    """Check that another process may open the file."""
    code = f"import duckdb; duckdb.connect({str(file)!r}).close()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_limits_of_the_url_are_those_of_duckdb(tmp_path: Path) -> None:
    with closing(opened(f"duckdb:///{tmp_path}/h.duckdb?memory_limit=64MiB&threads=1")) as house:
        assert house.query("SELECT current_setting('memory_limit'), current_setting('threads')") == [("64.0 MiB", 1)]
        assert house.name == f"duckdb:///{tmp_path}/h.duckdb"
    with closing(opened("duckdb://:memory:?memory_limit=32MiB")) as house:
        assert house.query("SELECT current_setting('memory_limit')") == [("32.0 MiB",)]


def test_too_little_memory_is_explained_and_nothing_is_lost(tmp_path: Path) -> None:
    with closing(opened(f"duckdb:///{tmp_path}/house.duckdb")) as house:
        house.merge(FACTS, [fact("a", "1")])
        house.query("SET memory_limit = '1MB'")
        with pytest.raises(
            StoreUnavailable, match=r"not have enough memory .*memory_limit=…, or use smaller .*primary_key=no"
        ):
            house.merge(FACTS, [fact(str(n), "1", "x" * 1000) for n in range(2_000)])
        house.query("SET memory_limit = '1GB'")
        assert house.query(COUNTED) == [(1, 1)]
        assert house.merge(FACTS, [fact("a", "1"), fact("b", "1")]).verdicts == ("same", "inserted")


def test_large_rows_go_in_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one piece, the same rows would need more memory than allowed."""
    rows = [fact(str(n), "1", f"{n}" + "x" * 65_536) for n in range(250)]
    size = sum(len(row["said"]) for row in rows)
    assert size > 7 * CHUNK_BYTES
    with closing(opened(f"duckdb:///{tmp_path}/house.duckdb?memory_limit=64MB&threads=2&primary_key=no")) as house:
        assert house.merge(FACTS, rows).inserted == 250
        assert house.merge(FACTS, rows).same == 250
        assert house.query("SELECT count(*), sum(length(said)) FROM facts") == [(250, size)]
        monkeypatch.setattr(duck_merging, "CHUNK_BYTES", 1 << 40)
        with pytest.raises(StoreUnavailable, match="not have enough memory"):
            house.merge(FACTS, rows)


@pytest.mark.mission("D1")
def test_a_batch_that_does_not_fit_into_memory_is_recognised_row_by_row(tmp_path: Path) -> None:
    """Even if the sides of a join spill to disk, no row may be missed, or it would be inserted twice."""
    wide = Table(name="wide", columns={"id": "text", "said": "text"}, key=("id",))
    with closing(DuckWarehouse(parse(f"duckdb:///{tmp_path}/house.duckdb?threads=2&primary_key=no"))) as house:
        house.prepare(wide)
        house.query("INSERT INTO wide SELECT sha256(i::VARCHAR), 'there' FROM range(150_000) t(i)")
        house.query("SET memory_limit = '40MB'")
        keys = [key for (key,) in house.query("SELECT id FROM wide WHERE id < '4'")]
        loaded = house.load("all of them again", wide, [{"id": key, "said": "again"} for key in keys])
        assert (loaded.inserted, loaded.unchanged) == (0, len(keys))
        assert len(keys) > 30_000


def test_a_table_has_an_index_unless_the_url_says_otherwise(house: DuckWarehouse, tmp_path: Path) -> None:
    indexed = "SELECT count(*) FROM duckdb_constraints() WHERE table_name = 'facts' AND constraint_type = 'PRIMARY KEY'"
    assert house.query(indexed) == [(0,)]
    with closing(opened(f"duckdb:///{tmp_path}/other.duckdb")) as other:
        assert other.query(indexed) == [(1,)]


def test_a_table_without_an_index_is_refused_where_one_is_expected(house: DuckWarehouse, tmp_path: Path) -> None:
    with (
        closing(DuckWarehouse(parse(f"duckdb:///{tmp_path}/house.duckdb"))) as other,
        pytest.raises(ConfigurationError, match=r"no unique index over id → .*or open it with \?primary_key=no"),
    ):
        other.prepare(FACTS)


def test_a_row_without_its_key_is_refused_by_the_table_itself(house: DuckWarehouse) -> None:
    with pytest.raises(Exception, match="NOT NULL constraint"):
        house.query("INSERT INTO facts VALUES (NULL, '1', '')")


def test_of_two_concurrent_merges_of_one_key_the_later_one_starts_over(house: DuckWarehouse, url: str) -> None:
    """The other merge commits after ours began: our snapshot does not contain its row."""
    with closing(opened(url)) as other:
        assert _merged_in_between(house, other) == ("different",)
        assert house.query(COUNTED) == [(1, 1)]


def test_without_turns_the_row_would_be_there_twice(
    house: DuckWarehouse, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turns prevent that, and the test above can fail."""
    monkeypatch.setattr(DuckTransaction, "count_turn", lambda _self, _table: None)
    with closing(opened(url)) as other:
        assert _merged_in_between(house, other) == ("inserted",)
        assert house.query(COUNTED) == [(2, 1)]


def _merged_in_between(house: DuckWarehouse, other: DuckWarehouse) -> tuple[str, ...]:
    """Return the result of a merge, if another one merges the same key before it gets its turn."""
    merging = house._transaction
    begun = 0

    def slowly(table: Table) -> DuckTransaction:
        nonlocal begun
        begun += 1
        if begun == 1:
            house.connection.execute(COUNTED).fetchall()
            assert other.merge(FACTS, [fact("a", "1")]).verdicts == ("inserted",)
        return merging(table)

    house._transaction = slowly  # type: ignore[method-assign]
    return tuple(house.merge(FACTS, [fact("a", "2")]).verdicts)


@pytest.mark.mission("D1")
def test_six_concurrent_connections_insert_each_row_once(house: DuckWarehouse, url: str) -> None:
    """Under all names of the table, and with loads between the merges."""
    named = [
        Table(name=name, columns=FACTS.columns, key=("id",), same_by=("digest",)) for name in ("main.facts", "FACTS")
    ]
    errors: list[BaseException] = []
    line = threading.Barrier(6)

    def work(number: int) -> None:
        table = (FACTS, *named)[number % 3]
        with closing(opened(url)) as mine:
            line.wait(60)
            try:
                for turn in range(5):
                    rows = [fact(f"{turn} {n}", str(number % 2)) for n in range(20)]
                    if number == 0:
                        mine.load(str(turn), table, rows)
                    else:
                        mine.merge(table, rows)
            except BaseException as error:
                errors.append(error)

    pool = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for one in pool:
        one.start()
    for one in pool:
        one.join()
    assert errors == []
    assert house.query(COUNTED) == [(100, 100)]


@pytest.mark.parametrize("settings", ["", "?primary_key=no"])
def test_six_threads_open_a_new_file_concurrently(tmp_path: Path, settings: str) -> None:
    """Each of them creates the tables if they are missing."""
    errors: list[BaseException] = []
    line = threading.Barrier(6)
    analysed = Table(name="analysis.facts", columns=FACTS.columns, key=("id",), same_by=("digest",))

    def work(file: Path) -> None:
        line.wait(60)
        try:
            with closing(opened(f"duckdb:///{file}{settings}")) as mine:
                mine.prepare(analysed)
                mine.merge(analysed, [fact("a", "1")])
        except BaseException as error:
            errors.append(error)

    for number in range(3):
        pool = [threading.Thread(target=work, args=(tmp_path / f"{number}.duckdb",)) for _ in range(6)]
        for one in pool:
            one.start()
        for one in pool:
            one.join()
    assert errors == []


def test_a_long_merge_is_waited_for(house: DuckWarehouse, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an index, all rows of a table conflict with each other: the second merge would fail."""
    monkeypatch.setattr("onceward.warehouse.duck.ATTEMPTS", 1)
    merging = house._transaction
    begun, verdicts = threading.Event(), list[str]()

    def slowly(table: Table) -> DuckTransaction:
        taken = merging(table)
        begun.set()
        second.join(0.2)  # it cannot end before we do
        return taken

    def follow() -> None:
        begun.wait(60)
        with closing(opened(url)) as other:
            try:
                verdicts.extend(other.merge(FACTS, [fact("b", "1")]).verdicts)
            except StoreUnavailable as error:
                verdicts.append(str(error))

    house._transaction = slowly  # type: ignore[method-assign]
    second = threading.Thread(target=follow)
    second.start()
    house.merge(FACTS, [fact("a", "1")])
    second.join()
    assert verdicts == ["inserted"]


def test_a_table_that_was_changed_by_a_query_is_looked_at_again(house: DuckWarehouse) -> None:
    house.merge(FACTS, [fact("a", "1")])
    house.query("ALTER TABLE facts ADD COLUMN rowid BIGINT")
    assert house.merge(FACTS, [fact("a", "1")]).verdicts == ("same",)
    assert house.query(COUNTED) == [(1, 1)]


def test_columns_may_be_called_as_ours_would_be(house: DuckWarehouse) -> None:
    odd = Table(
        name="odd",
        columns={"id": "text", "onceward_place": "text", "onceward_differs": "text", "places": "text"},
        key=("id",),
        same_by=("onceward_place", "onceward_differs", "places"),
    )
    house.prepare(odd)
    row = {"id": "a", "onceward_place": "b", "onceward_differs": "c", "places": "d"}
    assert house.merge(odd, [row]).verdicts == ("inserted",)
    assert house.merge(odd, [row, {**row, "places": "e"}]).verdicts == ("same", "different")


def test_a_column_that_hides_where_rows_are_does_no_harm(tmp_path: Path) -> None:
    """A row whose `rowid` is missing is found all the same."""
    with closing(DuckWarehouse(parse(f"duckdb:///{tmp_path}/house.duckdb?primary_key=no"))) as house:
        house.query("CREATE TABLE facts (id VARCHAR, digest VARCHAR, said VARCHAR, ROWID BIGINT)")
        house.prepare(FACTS)
        assert house.merge(FACTS, [fact("a", "1")]).verdicts == ("inserted",)
        assert house.merge(FACTS, [fact("a", "1")]).verdicts == ("same",)
        assert house.merge(FACTS, [fact("a", "2")]).verdicts == ("different",)
        assert house.found(FACTS, ["a", "b"], ["digest"]) == {"a": ("1",)}


def test_a_batch_of_nothing_is_staged_too(house: DuckWarehouse) -> None:
    DuckTransaction(house.connection, keyed=False).stage(RowBatch(FACTS, [], 0, ""))
    assert house.query("SELECT count(*) FROM onceward_staging") == [(0,)]
