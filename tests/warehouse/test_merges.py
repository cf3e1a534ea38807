"""Merge rows that may exist: the same row again, or a different one under the same key."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError, PayloadMismatch
from onceward.errors import SourceError
from onceward.warehouse import ComparesRows, Merged, Table, open_warehouse
from tests.servers.postgres import Postgres, execute

FACTS = Table(
    name="facts",
    columns={"id": "text", "digest": "text", "at": "integer", "said": "json", "seen": "time"},
    key=("id",),
    same_by=("digest", "at"),
)


@pytest.fixture(params=["duckdb", "duckdb without an index", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "duckdb without an index":
        return f"duckdb:///{tmp_path}/house.db?primary_key=no"
    if request.param != "postgres":
        return f"{request.param}:///{tmp_path}/house.db"
    server: Postgres = request.getfixturevalue("postgres")
    schema: str = request.getfixturevalue("schema")
    for table in ("facts", "pairs", "onceward_loads"):
        execute(f"DROP TABLE IF EXISTS {schema}.{table}", url=server.url)
    return f"{server.url}?schema={schema}"


@pytest.fixture
def house(url: str) -> Iterator[ComparesRows]:
    house = opened(url)
    house.prepare(FACTS)
    yield house
    house.close()


def opened(url: str) -> ComparesRows:
    house = open_warehouse(url)
    assert isinstance(house, ComparesRows)
    return house


def fact(id: str, digest: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "digest": digest, **more}


def stored_digests(house: ComparesRows) -> dict[str, str]:
    return dict(house.query("SELECT id, digest FROM facts"))


@pytest.mark.mission("D1")
def test_a_verdict_for_each_row_in_their_order(house: ComparesRows) -> None:
    assert house.merge(FACTS, [fact("a", "1"), fact("b", "1")]) == Merged(("inserted", "inserted"))
    rows = [fact("c", "1"), fact("a", "1", said={"other": 1}), fact("b", "2")]
    assert house.merge(FACTS, rows) == Merged(("inserted", "same", "different"))
    assert stored_digests(house) == {"a": "1", "b": "1", "c": "1"}
    assert house.query("SELECT said FROM facts WHERE id = ?", ["a"]) == [(None,)], "the first one stays"


def test_a_missing_value_agrees_with_any(house: ComparesRows) -> None:
    house.merge(FACTS, [fact("a", "1", at=7), fact("b", "1")])
    rows = [fact("a", "1"), fact("a", "1", at=8), fact("b", "1", at=9), fact("b", "2")]
    assert house.merge(FACTS, rows).verdicts == ("same", "different", "same", "different")


def test_rows_of_one_key_in_one_batch_are_compared_with_what_is_stored(house: ComparesRows) -> None:
    house.merge(FACTS, [fact("a", "1")])
    rows = [fact("a", "2"), fact("a", "1"), fact("b", "1"), fact("b", "2"), fact("b", "1"), fact("a", "2")]
    verdicts = ("different", "same", "inserted", "different", "same", "different")
    assert house.merge(FACTS, rows).verdicts == verdicts
    assert stored_digests(house) == {"a": "1", "b": "1"}


@pytest.mark.mission("D1")
def test_whole_means_all_of_it_or_nothing(house: ComparesRows) -> None:
    house.merge(FACTS, [fact("a", "1")], whole=True)
    with pytest.raises(PayloadMismatch, match=r"facts has another row under a: nothing was inserted \[key a\]"):
        house.merge(FACTS, [fact("b", "1"), fact("a", "2"), fact("c", "1")], whole=True)
    assert stored_digests(house) == {"a": "1"}
    assert house.merge(FACTS, [fact("b", "1"), fact("a", "1")], whole=True).inserted == 1, "and it can be used again"


def test_a_batch_that_contradicts_itself_does_not_go_in_as_a_whole_also_if_what_is_there_agrees_with_both(
    house: ComparesRows,
) -> None:
    house.merge(FACTS, [fact("a", "1")])
    with pytest.raises(PayloadMismatch, match="nothing was inserted"):
        house.merge(FACTS, [fact("b", "1"), fact("a", "1", at=5), fact("a", "1"), fact("a", "1", at=6)], whole=True)
    assert stored_digests(house) == {"a": "1"}
    same = [fact("b", "1"), fact("b", "1", at=5)]
    assert house.merge(FACTS, same, whole=True).verdicts == ("inserted", "same"), "a missing value contradicts nothing"


def test_many_that_differ_are_not_all_named(house: ComparesRows) -> None:
    house.merge(FACTS, [fact(str(n), "1") for n in range(9)])
    with pytest.raises(PayloadMismatch, match=r"0; 1; 2; 3; 4 and 4 more"):
        house.merge(FACTS, [fact(str(n), "2") for n in range(9)], whole=True)


def test_a_row_that_cannot_be_read_stops_the_merge_before_anything_is_written(house: ComparesRows) -> None:
    with pytest.raises(SourceError, match="row 2: digest is not a valid text"):
        house.merge(FACTS, [fact("a", "1"), {"id": "b", "digest": 7}])
    with pytest.raises(SourceError, match="row 1 has no id"):
        house.merge(FACTS, [{"digest": "1"}])
    assert stored_digests(house) == {}
    assert house.merge(FACTS, []) == Merged(())


def test_a_key_of_several_columns_with_a_time_among_them(house: ComparesRows) -> None:
    pairs = Table(
        name="pairs",
        columns={"who": "text", "seen": "time", "digest": "text"},
        key=("who", "seen"),
        same_by=("digest",),
    )
    house.prepare(pairs)
    row = {"who": "anna", "seen": "2026-03-01T12:00:00Z", "digest": "1"}
    again = row | {"seen": "2026-03-01T13:00:00+01:00"}
    assert house.merge(pairs, [row, again]).verdicts == ("inserted", "same")
    assert house.merge(pairs, [again | {"digest": "2"}]).verdicts == ("different",)


def test_existing_rows_are_found_by_one_query(house: ComparesRows) -> None:
    house.merge(FACTS, [fact("a", "1", at=7), fact("b", "2")])
    assert house.found(FACTS, ["b", "a", "x"], ("digest", "at")) == {"b": ("2", None), "a": ("1", 7)}
    assert house.known(FACTS, ["b", "x"]) == {"b"}
    with pytest.raises(ConfigurationError, match="'said' cannot be looked up"):
        house.found(FACTS, ["a"], ("said",))


def test_a_table_says_what_makes_a_row_the_same(house: ComparesRows) -> None:
    plain = Table(name="facts", columns={"id": "text"}, key=("id",))
    with pytest.raises(ConfigurationError, match="rows cannot be compared"):
        house.merge(plain, [{"id": "a"}])
    with pytest.raises(ConfigurationError, match="replaced rows may differ"):
        Table(name="t", columns={"id": "text", "d": "text"}, key=("id",), on_match="replace", same_by=("d",))
    with pytest.raises(ConfigurationError, match="has no column 'digest'"):
        Table(name="t", columns={"id": "text"}, key=("id",), same_by=("digest",))


@pytest.mark.mission("D1")
def test_of_eight_concurrent_merges_one_inserts_and_the_others_differ(house: ComparesRows, url: str) -> None:
    """On DuckDB, the threads share one connection; elsewhere each has its own."""
    houses = [house] * 8 if url.startswith("duckdb") else [house, *(opened(url) for _ in range(7))]
    for number in range(20):
        together = threading.Barrier(8)
        verdicts: list[str] = []

        def put(mine: ComparesRows, digest: str, id: str = str(number), together: threading.Barrier = together) -> None:
            together.wait()
            verdicts.extend(mine.merge(FACTS, [fact(id, digest)]).verdicts)  # noqa: B023 (ends within the round)

        pool = [threading.Thread(target=put, args=(mine, str(n))) for n, mine in enumerate(houses)]
        for one in pool:
            one.start()
        for one in pool:
            one.join()
        assert sorted(verdicts) == ["different"] * 7 + ["inserted"], f"round {number}"
    for other in houses[1:]:
        if other is not house:
            other.close()
