"""Loads into BigQuery's emulator: what is promised of every warehouse, and what jobs, answers and transactions add."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from onceward import ConfigurationError, PayloadMismatch, SourceError, StoreNotSetUp, StoreUnavailable
from onceward.warehouse import Table, Warehouse, bigquery, bigquery_jobs, open_warehouse
from onceward.warehouse.batch import batch_of
from onceward.warehouse.bigquery import BigQueryWarehouse
from onceward.warehouse.bigquery_jobs import Jobs
from tests.servers.bigquery import INSTALLING, BigQueryServer, shared
from tests.servers.bigquery_front import Front
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
    test_one_load_sent_at_once_by_several_is_done_once,
    test_the_same_load_id_with_other_rows_is_a_mismatch,
    test_which_are_known_is_one_question,
)
from tests.warehouse.test_values import VALUES, _json, rows

__all__ = [  # told here so that pytest finds them: they run on the fixtures below
    "test_a_key_of_several_columns_is_a_tuple",
    "test_a_load_needs_an_id",
    "test_a_load_that_comes_again_does_nothing_and_answers_the_same",
    "test_a_row_that_replaces_is_written_only_if_it_differs_and_is_not_older",
    "test_a_statement_that_is_there_stays_as_it_is",
    "test_if_the_id_alone_counts_other_rows_change_nothing",
    "test_one_load_sent_at_once_by_several_is_done_once",
    "test_the_same_load_id_with_other_rows_is_a_mismatch",
    "test_which_are_known_is_one_question",
]

pytestmark = pytest.mark.timeout(INSTALLING)  # whoever comes first installs the emulator


@pytest.fixture
def emulator() -> BigQueryServer:
    return shared()


@pytest.fixture
def front(emulator: BigQueryServer) -> Iterator[Front]:
    with Front(emulator.port) as front:
        yield front


@pytest.fixture
def dataset() -> str:
    return f"d{uuid.uuid4().hex[:12]}"


@pytest.fixture
def url(front: Front, dataset: str) -> str:
    return url_of(front, dataset)


def url_of(place: BigQueryServer | Front, dataset: str) -> str:
    return f"bigquery://onceward-test/{dataset}?endpoint={place.endpoint}"


@pytest.fixture
def house(url: str) -> Iterator[Warehouse]:
    with_tables = prepared(url)
    yield with_tables
    with_tables.close()


def prepared(url: str) -> BigQueryWarehouse:
    house = open_warehouse(url)
    assert isinstance(house, BigQueryWarehouse)
    for table in (STATEMENTS, USERS):
        house.prepare(table)
    return house


@pytest.fixture
def query(house: BigQueryWarehouse, dataset: str) -> Query:
    return asking(house, dataset)


def asking(house: BigQueryWarehouse, dataset: str) -> Query:
    from google.cloud import bigquery as client

    def ask(statement: str) -> list[tuple[Any, ...]]:
        config = client.QueryJobConfig(default_dataset=f"onceward-test.{dataset}")
        return [tuple(row.values()) for row in house.client.query(statement, job_config=config).result()]

    return ask


def staged(house: BigQueryWarehouse, dataset: str) -> list[str]:
    return [table.table_id for table in house.client.list_tables(dataset) if "staging" in table.table_id]


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
def test_what_is_loaded_into_bigquery_is_what_is_there(front: Front, given_rows: list[dict[str, Any]]) -> None:
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


# ── lost answers, and jobs that are sent again ──


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F53")
@pytest.mark.parametrize("lost", [["staging"], ["load"], ["staging", "load", "load"]])
def test_an_answer_that_is_lost_costs_nothing(front: Front, dataset: str, lost: list[str]) -> None:
    house = prepared(url_of(front, dataset))
    front.lose(*lost)
    loaded = house.load("batch 1", USERS, [{"user_id": "anna"}, {"user_id": "bo"}])
    assert (loaded.inserted, loaded.replayed) == (2, False), "it is our load, although its answer was lost"
    assert front.lost == len(lost)
    assert len(front.repeated) >= len(set(lost)), "sent again under the same id, which is the same job"
    assert asking(house, dataset)("SELECT COUNT(*) FROM users") == [(2,)]
    assert staged(house, dataset) == []
    house.close()


@pytest.mark.fault("F53")
def test_without_an_id_of_its_own_a_job_whose_answer_is_lost_would_be_done_twice(
    front: Front, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: the test above could fail."""
    house = prepared(url_of(front, dataset))
    asked = Jobs.asked

    def ended_anew(self: Jobs, job_id: str, sql: str, parameters: dict[str, str]) -> tuple[bool, None]:
        def done() -> None:
            anew = f"{job_id}_{uuid.uuid4().hex}"
            config = self._config(parameters)
            self._client.query(sql, job_id=anew, job_config=config, retry=None, job_retry=None).result()

        asked(self, done, job_id)
        return True, None

    monkeypatch.setattr(Jobs, "_ended", ended_anew)
    front.lose("staging")
    house.load("batch 1", USERS, [{"user_id": "anna"}])
    assert asking(house, dataset)("SELECT COUNT(*) FROM users") == [(2,)]
    house.close()


@pytest.mark.mission("D1")
@pytest.mark.fault("F55")
def test_a_transaction_in_whose_way_another_one_came_is_repeated_under_the_next_id(front: Front, dataset: str) -> None:
    house = prepared(url_of(front, dataset))
    front.abort(3)
    assert house.load("batch 1", USERS, [{"user_id": "anna"}]).inserted == 1
    assert front.aborted == 3
    merges = sorted(job for job in front.jobs if job.startswith("onceward_load_"))
    assert [job.rpartition("_")[2] for job in merges] == ["0", "1", "2", "3"]
    assert len({job.rpartition("_")[0] for job in merges}) == 1
    house.close()


@contextmanager
def another_in_its_transaction(
    front: Front, url: str, load_id: str, row: dict[str, Any], table: Table = STATEMENTS
) -> Iterator[None]:
    """It is let go when it has been in somebody's way."""
    other = prepared(url)
    other.prepare(table)
    front.hold()

    def release() -> None:
        front.saw_abort.wait(60)
        front.release()

    crew = [threading.Thread(target=other.load, args=(load_id, table, [row])), threading.Thread(target=release)]
    for one in crew:
        one.start()
    assert front.reached.wait(60)
    yield
    for one in crew:
        one.join()
    other.close()
    assert front.aborted >= 1


@pytest.mark.mission("D1")
@pytest.mark.parametrize("whose", ["its own", "another"])
def test_no_two_loads_into_a_table_are_in_their_transactions_at_once(front: Front, dataset: str, whose: str) -> None:
    """Or both would insert what neither has found: on BigQuery, statements that only insert do not conflict.

    Also if one of them knows the table as another dataset's.
    """
    house = prepared(url_of(front, dataset))
    elsewhere = (f"{dataset}_b", structs.replace(STATEMENTS, name=f"{dataset}.{STATEMENTS.name}"))
    at, table = (dataset, STATEMENTS) if whose == "its own" else elsewhere
    with another_in_its_transaction(front, url_of(front, at), "slow", {"statement_id": "s1"}, table):
        loaded = house.load("quick", STATEMENTS, [{"statement_id": "s1"}, {"statement_id": "s2"}])
    assert (loaded.inserted, loaded.unchanged) == (1, 1)
    house.close()


@pytest.mark.fault("F18")
def test_the_same_load_id_with_other_rows_at_once_is_a_mismatch_and_loads_nothing(front: Front, dataset: str) -> None:
    url = url_of(front, dataset)
    house = prepared(url)
    with (
        another_in_its_transaction(front, url, "one", {"statement_id": "s1"}),
        pytest.raises(PayloadMismatch, match="done before with other rows"),
    ):
        house.load("one", STATEMENTS, [{"statement_id": "s2"}])
    assert asking(house, dataset)("SELECT statement_id FROM statements") == [("s1",)]
    house.close()


def test_one_that_never_gets_its_turn_says_so_and_may_be_repeated(
    front: Front, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bigquery_jobs, "TRIES", 3)
    house = prepared(url_of(front, dataset))
    front.abort(5)
    with pytest.raises(StoreUnavailable, match="somebody else was faster, 3 times"):
        house.load("batch 1", USERS, [{"user_id": "anna"}])
    assert house.load("batch 1", USERS, [{"user_id": "anna"}]).inserted == 1, "what was aborted before does not count"
    house.close()


def test_a_record_that_was_deleted_lets_the_load_run_again(front: Front, dataset: str) -> None:
    house = prepared(url_of(front, dataset))
    house.load("batch 1", USERS, [{"user_id": "anna"}])
    asking(house, dataset)("DELETE FROM onceward_loads WHERE TRUE")
    again = house.load("batch 1", USERS, [{"user_id": "anna"}])
    assert (again.inserted, again.unchanged, again.replayed) == (0, 1, False)
    house.close()


@pytest.mark.mission("D1")
@pytest.mark.parametrize("place", ["emulator", "front"])
def test_overlapping_loads_at_once_insert_each_row_once(
    request: pytest.FixtureRequest, dataset: str, place: str
) -> None:
    """Of transactions at once the front aborts all but one, as BigQuery does; the bare emulator lets them wait."""
    url = url_of(request.getfixturevalue(place), dataset)
    house = prepared(url)
    inserted: list[int] = []
    errors: list[BaseException] = []
    line = threading.Barrier(3)

    def load(number: int) -> None:
        other = open_warehouse(url)
        try:
            line.wait(30)
            for turn in range(2):
                rows = [{"user_id": f"u{n}", "seen": number} for n in range(10 * turn, 10 * turn + 20)]
                inserted.append(other.load(f"{number} {turn}", USERS, rows).inserted)
        except BaseException as error:
            errors.append(error)
        finally:
            other.close()

    crew = [threading.Thread(target=load, args=(number,)) for number in range(3)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert errors == []
    assert sum(inserted) == 30
    assert asking(house, dataset)("SELECT COUNT(*), COUNT(DISTINCT user_id) FROM users") == [(30, 30)]
    house.close()


STRUCK = """
import os, signal, sys
from onceward.warehouse import Table, open_warehouse
from onceward.warehouse.batch import batch_of
from onceward.warehouse.bigquery import BigQueryWarehouse

def die(*args):
    os.kill(os.getpid(), signal.SIGKILL)

asked = []
if sys.argv[2] == "before the merge":
    BigQueryWarehouse._merged = die
else:
    BigQueryWarehouse._answer = lambda *args: die() if asked else asked.append(1)
house = open_warehouse(sys.argv[1])
users = Table(name="users", columns={"user_id": "text", "name": "text", "seen": "integer"}, key=("user_id",))
house.load("1", users, [{"user_id": f"u{n}"} for n in range(10)])
"""


@pytest.mark.mission("D5")
@pytest.mark.fault("F30", "F31")
@pytest.mark.parametrize("when", ["before the merge", "after the merge"])
def test_a_loader_that_is_killed_leaves_all_or_nothing_in_bigquery(front: Front, dataset: str, when: str) -> None:
    house = prepared(url_of(front, dataset))
    command = [sys.executable, "-c", STRUCK, url_of(front, dataset), when]
    assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
    is_there = when == "after the merge"
    query = asking(house, dataset)
    assert query("SELECT COUNT(*) FROM users") == [(10 if is_there else 0,)]
    again = house.load("1", USERS, [{"user_id": f"u{n}"} for n in range(10)])
    assert (again.inserted, again.replayed) == (10, is_there)
    assert query("SELECT COUNT(*) FROM users") == [(10,)]
    assert set(staged(house, dataset)) <= front.expiring, "what was left is removed by BigQuery"
    house.close()


# ── what it costs, and what may be wrong ──


def test_the_jobs_of_a_load_are_as_many_as_the_page_says(front: Front, dataset: str) -> None:
    house = prepared(url_of(front, dataset))
    jobs: Callable[[], int] = lambda: front.asked["jobs"]  # noqa: E731 (read three times)
    before = jobs()
    house.load("1", USERS, [{"user_id": "anna"}])
    assert jobs() - before == 4, "look, stage, merge, answer"
    before = jobs()
    house.load("1", USERS, [{"user_id": "anna"}])
    assert jobs() - before == 1, "look"
    before = jobs()
    house.known(USERS, ["anna", "bo"])
    assert jobs() - before == 1
    house.close()


def test_a_table_of_bigquery_that_is_there_must_fit(house: BigQueryWarehouse, query: Query) -> None:
    with pytest.raises(ConfigurationError, match="without: colour"):
        house.prepare(Table(name="users", columns={"user_id": "text", "colour": "text"}, key=("user_id",)))
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
def test_a_load_that_is_refused_leaves_nothing_and_may_be_repeated_once_the_table_is_mended(
    house: BigQueryWarehouse, query: Query
) -> None:
    strict = Table(name="counted", columns={"id": "text", "n": "integer"}, key=("id",))
    house.prepare(strict)
    query("DROP TABLE counted")
    query("CREATE TABLE counted (id STRING, n INT64 NOT NULL)")
    rows: list[dict[str, Any]] = [{"id": "a", "n": 1}, {"id": "b"}]
    with pytest.raises(SourceError, match="counted refuses a row"):
        house.load("1", strict, rows)
    assert query("SELECT COUNT(*) FROM counted") == [(0,)]
    query("DROP TABLE counted")
    query("CREATE TABLE counted (id STRING, n INT64)")
    assert house.load("1", strict, rows).inserted == 2, "the job that failed is not held against it"


def test_no_rows_are_a_load_like_any_other(house: BigQueryWarehouse) -> None:
    assert house.load("1", USERS, []).inserted == 0
    assert house.load("1", USERS, []).replayed
    assert house.known(USERS, []) == set()


@pytest.mark.fault("F52")
def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bigquery_jobs, "SENDINGS", 2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"bigquery://onceward-test/d?endpoint=http://127.0.0.1:{deaf.getsockname()[1]}&timeout=200ms"
        with pytest.raises(StoreUnavailable, match="timed out"):
            open_warehouse(url)


def test_without_credentials_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/at/all.json")
    with pytest.raises(StoreNotSetUp, match="no credentials"):
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
        "bigquery://p/d?colour=red",
        "bigquery:///d",
    ],
)
def test_a_url_that_names_no_dataset_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_warehouse(url)
