"""Jobs in BigQuery's emulator that lose their answer, conflict or are killed: each load is done once."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import structs

from onceward import PayloadMismatch, StoreUnavailable
from onceward.warehouse import Table, bigquery_jobs, open_warehouse
from onceward.warehouse.bigquery import BigQueryWarehouse
from onceward.warehouse.bigquery_jobs import Jobs
from tests.servers.bigquery import INSTALLING
from tests.servers.bigquery_front import Front
from tests.warehouse.bigquery_fixtures import asking, dataset, emulator, front, prepared, url_of
from tests.warehouse.test_loads import STATEMENTS, USERS

__all__ = ["dataset", "emulator", "front"]  # fixtures, imported here so that pytest finds them

pytestmark = pytest.mark.timeout(INSTALLING)  # the first test installs the emulator


def staged(house: BigQueryWarehouse, dataset: str) -> list[str]:
    return [table.table_id for table in house.client.list_tables(dataset) if "staging" in table.table_id]


@pytest.mark.mission("D1", "D5")
@pytest.mark.fault("F53")
@pytest.mark.parametrize("lost", [["staging"], ["load"], ["staging", "load", "load"]])
def test_an_answer_that_is_lost_costs_nothing(front: Front, dataset: str, lost: list[str]) -> None:
    house = prepared(url_of(front, dataset))
    front.lose(*lost)
    loaded = house.load("batch 1", USERS, [{"user_id": "anna"}, {"user_id": "bo"}])
    assert (loaded.inserted, loaded.replayed) == (2, False), "the load is ours, although its answer was lost"
    assert front.lost == len(lost)
    assert len(front.repeated) >= len(set(lost)), "sent again under the same id, which is the same job"
    assert asking(house, dataset)("SELECT COUNT(*) FROM users") == [(2,)]
    assert staged(house, dataset) == []
    house.close()


@pytest.mark.fault("F53")
def test_without_an_id_of_its_own_a_job_whose_answer_is_lost_would_be_done_twice(
    front: Front, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken variant, to show that the test above can fail."""
    house = prepared(url_of(front, dataset))
    asked = Jobs.retry_request

    def ended_anew(self: Jobs, job_id: str, sql: str, parameters: dict[str, str]) -> tuple[bool, None]:
        def done() -> None:
            anew = f"{job_id}_{uuid.uuid4().hex}"
            config = self._config(parameters)
            self._client.query(sql, job_id=anew, job_config=config, retry=None, job_retry=None).result()

        asked(self, done, job_id)
        return True, None

    monkeypatch.setattr(Jobs, "_finish", ended_anew)
    front.lose("staging")
    house.load("batch 1", USERS, [{"user_id": "anna"}])
    assert asking(house, dataset)("SELECT COUNT(*) FROM users") == [(2,)]
    house.close()


@pytest.mark.mission("D1")
@pytest.mark.fault("F55")
def test_a_transaction_that_conflicts_is_repeated_under_the_next_id(front: Front, dataset: str) -> None:
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
    """The other transaction is released once it has caused a conflict."""
    other = prepared(url)
    other.prepare(table)
    front.hold()

    def release() -> None:
        front.saw_abort.wait(60)
        front.release()

    pool = [threading.Thread(target=other.load, args=(load_id, table, [row])), threading.Thread(target=release)]
    for one in pool:
        one.start()
    assert front.reached.wait(60)
    yield
    for one in pool:
        one.join()
    other.close()
    assert front.aborted >= 1


@pytest.mark.mission("D1")
@pytest.mark.parametrize("whose", ["its own", "another"])
def test_no_two_loads_into_a_table_run_their_transactions_at_the_same_time(
    front: Front, dataset: str, whose: str
) -> None:
    """Otherwise both would insert rows that neither found: on BigQuery, statements that only insert do not conflict.

    Also if one of them reaches the table from another dataset.
    """
    house = prepared(url_of(front, dataset))
    elsewhere = (f"{dataset}_b", structs.replace(STATEMENTS, name=f"{dataset}.{STATEMENTS.name}"))
    at, table = (dataset, STATEMENTS) if whose == "its own" else elsewhere
    with another_in_its_transaction(front, url_of(front, at), "slow", {"statement_id": "s1"}, table):
        loaded = house.load("quick", STATEMENTS, [{"statement_id": "s1"}, {"statement_id": "s2"}])
    assert (loaded.inserted, loaded.unchanged) == (1, 1)
    house.close()


@pytest.mark.fault("F18")
def test_the_same_load_id_with_other_rows_at_the_same_time_is_a_mismatch_and_loads_nothing(
    front: Front, dataset: str
) -> None:
    url = url_of(front, dataset)
    house = prepared(url)
    with (
        another_in_its_transaction(front, url, "one", {"statement_id": "s1"}),
        pytest.raises(PayloadMismatch, match="already used with other rows"),
    ):
        house.load("one", STATEMENTS, [{"statement_id": "s2"}])
    assert asking(house, dataset)("SELECT statement_id FROM statements") == [("s1",)]
    house.close()


def test_a_load_that_never_gets_its_turn_says_so_and_may_be_repeated(
    front: Front, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bigquery_jobs, "MAX_CONFLICTS", 3)
    house = prepared(url_of(front, dataset))
    front.abort(5)
    with pytest.raises(StoreUnavailable, match="conflicts with other loads, 3 times"):
        house.load("batch 1", USERS, [{"user_id": "anna"}])
    assert house.load("batch 1", USERS, [{"user_id": "anna"}]).inserted == 1, "aborted jobs do not count"
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
def test_overlapping_concurrent_loads_insert_each_row_once(
    request: pytest.FixtureRequest, dataset: str, place: str
) -> None:
    """Of concurrent transactions, the proxy aborts all but one, as BigQuery does; the bare emulator lets them wait."""
    url = url_of(request.getfixturevalue(place), dataset)
    house = prepared(url)
    inserted: list[int] = []
    errors: list[BaseException] = []
    line = threading.Barrier(3)

    def load(number: int) -> None:
        other = open_warehouse(url)
        try:
            line.wait(60)
            for turn in range(2):
                rows = [{"user_id": f"u{n}", "seen": number} for n in range(10 * turn, 10 * turn + 20)]
                inserted.append(other.load(f"{number} {turn}", USERS, rows).inserted)
        except BaseException as error:
            errors.append(error)
        finally:
            other.close()

    pool = [threading.Thread(target=load, args=(number,)) for number in range(3)]
    for one in pool:
        one.start()
    for one in pool:
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
    BigQueryWarehouse._merge_staged = die
else:
    BigQueryWarehouse._find_load = lambda *args: die() if asked else asked.append(1)
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
    assert set(staged(house, dataset)) <= front.expiring, "BigQuery removes the leftovers"
    house.close()


# ── what it costs ──


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
