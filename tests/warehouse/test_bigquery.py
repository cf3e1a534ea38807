"""Loads into BigQuery's emulator: the promises of every warehouse, which values arrive, and what is refused."""

from __future__ import annotations

import socket
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward import ConfigurationError, StoreUnavailable
from onceward.errors import SourceError, StoreNotSetUp
from onceward.warehouse import Table, bigquery, bigquery_jobs, open_warehouse
from onceward.warehouse.batch import batch_of
from onceward.warehouse.bigquery import BigQueryWarehouse
from tests.servers.bigquery import INSTALLING
from tests.servers.bigquery_front import Front
from tests.warehouse.bigquery_fixtures import asking, dataset, emulator, front, house, prepared, query, url, url_of
from tests.warehouse.test_loads import (
    ONE,
    STATEMENTS,
    USERS,
    Query,
    test_a_key_of_several_columns_is_a_tuple,
    test_a_load_needs_an_id,
    test_a_load_that_comes_again_does_nothing_and_answers_the_same,
    test_a_row_that_replaces_is_written_only_if_it_differs_and_is_not_older,
    test_a_statement_that_is_there_stays_as_it_is,
    test_if_the_id_alone_counts_other_rows_change_nothing,
    test_known_keys_are_found_by_one_query,
    test_one_load_sent_concurrently_by_several_is_done_once,
    test_the_same_load_id_with_other_rows_is_a_mismatch,
)
from tests.warehouse.test_values import VALUES, _json, rows

__all__ = [  # imported here so that pytest finds them: the fixtures, and tests that also run on BigQuery
    "dataset",
    "emulator",
    "front",
    "house",
    "query",
    "test_a_key_of_several_columns_is_a_tuple",
    "test_a_load_needs_an_id",
    "test_a_load_that_comes_again_does_nothing_and_answers_the_same",
    "test_a_row_that_replaces_is_written_only_if_it_differs_and_is_not_older",
    "test_a_statement_that_is_there_stays_as_it_is",
    "test_if_the_id_alone_counts_other_rows_change_nothing",
    "test_known_keys_are_found_by_one_query",
    "test_one_load_sent_concurrently_by_several_is_done_once",
    "test_the_same_load_id_with_other_rows_is_a_mismatch",
    "url",
]

pytestmark = pytest.mark.timeout(INSTALLING)  # the first test installs the emulator


@pytest.mark.mission("D1")
def test_values_arrive_as_they_left_in_bigquery(house: BigQueryWarehouse, query: Query) -> None:
    odd = 'Größe "5" \\ \u2028 \U0001f600\n\t'
    rows = [ONE, {"statement_id": odd, "score": -1.5e-300, "passed": False, "raw": {"x": odd, "big": 2**53}}]
    house.load(f"batch {odd}", STATEMENTS, rows)
    found = query(
        "SELECT statement_id, UNIX_MICROS(at), score, passed, TO_JSON_STRING(raw) FROM statements ORDER BY passed DESC"
    )
    assert [row[:4] for row in found] == [("s1", 1_772_366_400_000_000, 0.5, True), (odd, None, -1.5e-300, False)]
    assert found[0][4].replace(" ", "") == '{"a":[null],"b":1}'
    assert house.load(f"batch {odd}", STATEMENTS, rows).replayed


@given(st.lists(rows, min_size=20, max_size=60))
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
def test_loaded_values_are_stored_unchanged_in_bigquery(front: Front, given_rows: list[dict[str, Any]]) -> None:
    dataset = f"d{uuid.uuid4().hex[:12]}"
    house = open_warehouse(url_of(front, dataset))
    assert isinstance(house, BigQueryWarehouse)
    house.prepare(VALUES)
    house.load("all", VALUES, given_rows)
    found = asking(house, dataset)("SELECT id, i, f, b, UNIX_MICROS(t), TO_JSON_STRING(j) FROM any_values")
    expected = {(*row[:5], _json(row[5])) for row in batch_of(VALUES, given_rows).rows}
    assert {(*row[:5], _json(row[5])) for row in found} == expected
    house.close()


def test_integers_of_64_bits_stay_whole(house: BigQueryWarehouse, query: Query) -> None:
    house.load("1", USERS, [{"user_id": "a", "seen": 2**63 - 1}, {"user_id": "b", "seen": -(2**63)}])
    assert query("SELECT seen FROM users ORDER BY user_id") == [(2**63 - 1,), (-(2**63),)]


def test_a_row_of_json_is_replaced_only_if_it_differs(house: BigQueryWarehouse) -> None:
    table = Table(name="j", columns={"id": "text", "raw": "json"}, key=("id",), on_match="replace")
    house.prepare(table)
    assert house.load("1", table, [{"id": "a", "raw": {"b": 1, "a": 2}}]).inserted == 1
    assert house.load("2", table, [{"id": "a", "raw": {"a": 2, "b": 1}}]).unchanged == 1
    assert house.load("3", table, [{"id": "a", "raw": {"a": 3}}]).updated == 1


def test_a_large_batch_goes_up_in_several_requests(front: Front, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bigquery, "CHUNK", 1_000)
    house = prepared(url_of(front, dataset))
    front.asked.clear()
    rows = [{"user_id": f"u{n}", "name": "x" * 100} for n in range(50)]
    front.lose("_3_0")
    assert house.load("1", USERS, rows).inserted == 50
    assert front.asked["jobs"] > 8
    assert asking(house, dataset)("SELECT COUNT(*), COUNT(DISTINCT user_id) FROM users") == [(50, 50)]
    with pytest.raises(SourceError, match="a row for users has 2,0"):
        house.load("2", USERS, [{"user_id": "u", "name": "x" * 2000}])
    house.close()


# ── errors ──


def test_a_table_of_bigquery_that_is_there_must_fit(house: BigQueryWarehouse, query: Query) -> None:
    with pytest.raises(ConfigurationError, match="lacks the columns: mode"):
        house.prepare(Table(name="users", columns={"user_id": "text", "mode": "text"}, key=("user_id",)))
    query("CREATE TABLE counted (id STRING, n INT64, f FLOAT64, at DATETIME)")
    for column, kind in (("n", "number"), ("f", "integer"), ("at", "time")):
        with pytest.raises(ConfigurationError, match=f"would round: {column}"):
            house.prepare(Table(name="counted", columns={"id": "text", column: kind}, key=("id",)))  # type: ignore[dict-item]


def test_a_table_may_be_in_another_dataset(house: BigQueryWarehouse, query: Query, dataset: str) -> None:
    table = Table(name=f"{dataset}_b.users", columns={"id": "text"}, key=("id",))
    house.prepare(table)
    assert house.load("1", table, [{"id": "a"}]).inserted == 1
    assert query(f"SELECT id FROM {dataset}_b.users") == [("a",)]


def test_a_table_that_was_not_prepared_says_so(house: BigQueryWarehouse) -> None:
    other = Table(name="other", columns={"id": "text"}, key=("id",))
    with pytest.raises(StoreNotSetUp, match="other"):
        house.load("1", other, [{"id": "a"}])


@pytest.mark.mission("D5")
def test_a_load_that_is_refused_leaves_nothing_and_may_be_repeated_once_the_table_is_fixed(
    house: BigQueryWarehouse, query: Query
) -> None:
    strict = Table(name="counted", columns={"id": "text", "n": "integer"}, key=("id",))
    house.prepare(strict)
    query("DROP TABLE counted")
    query("CREATE TABLE counted (id STRING, n INT64 NOT NULL)")
    rows: list[dict[str, Any]] = [{"id": "a", "n": 1}, {"id": "b"}]
    with pytest.raises(SourceError, match="counted rejects a row"):
        house.load("1", strict, rows)
    assert query("SELECT COUNT(*) FROM counted") == [(0,)]
    query("DROP TABLE counted")
    query("CREATE TABLE counted (id STRING, n INT64)")
    assert house.load("1", strict, rows).inserted == 2, "the failed job does not block it"


def test_no_rows_are_a_load_like_any_other(house: BigQueryWarehouse) -> None:
    assert house.load("1", USERS, []).inserted == 0
    assert house.load("1", USERS, []).replayed
    assert house.known(USERS, []) == set()


@pytest.mark.fault("F52")
def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bigquery_jobs, "MAX_SENDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"bigquery://onceward-test/d?endpoint=http://127.0.0.1:{deaf.getsockname()[1]}&timeout=200ms"
        with pytest.raises(StoreUnavailable, match="timed out"):
            open_warehouse(url)


def test_without_credentials_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/at/all.json")
    with pytest.raises(StoreNotSetUp, match="credentials are missing"):
        open_warehouse("bigquery://onceward-test/d")


@pytest.mark.fault("F50")
def test_a_server_that_is_away_means_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceward.warehouse.bigquery_jobs.PAUSE", 0.001)
    with pytest.raises(StoreUnavailable, match="bigquery://onceward-test/d"):
        open_warehouse("bigquery://onceward-test/d?endpoint=http://127.0.0.1:9&timeout=2s")


@pytest.mark.parametrize(
    "url",
    [
        "bigquery://",
        "bigquery://[",
        "bigquery://project",
        "bigquery://project/d-x",
        "bigquery://p/d?unknown=1",
        "bigquery:///d",
    ],
)
def test_a_url_that_names_no_dataset_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_warehouse(url)
