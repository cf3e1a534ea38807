"""Merges into BigQuery's emulator: the promises of every warehouse, and learning records."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples.learning.records import parse_statement
from examples.learning.search import Search
from examples.learning.storage import open_storage
from onceward import PayloadMismatch, StoreUnavailable
from onceward.warehouse import ComparesRows
from tests.learning.samples import statement, uuid, voiding
from tests.servers.bigquery import INSTALLING, shared
from tests.servers.bigquery_front import Front
from tests.warehouse import test_merges
from tests.warehouse.bigquery_fixtures import dataset, emulator, front, url, url_of
from tests.warehouse.test_merges import (
    FACTS,
    test_a_verdict_for_each_row_in_their_order,
    test_whole_means_all_of_it_or_nothing,
)

__all__ = [  # imported here so that pytest finds them
    "dataset",
    "emulator",
    "front",
    "test_a_verdict_for_each_row_in_their_order",
    "test_whole_means_all_of_it_or_nothing",
    "url",
]

pytestmark = pytest.mark.timeout(INSTALLING)


@pytest.fixture
def house(url: str) -> Iterator[ComparesRows]:
    house = prepared(url)
    yield house
    house.close()


def prepared(url: str) -> ComparesRows:
    house = test_merges.opened(url)
    house.prepare(FACTS)
    return house


@pytest.mark.mission("D1")
def test_of_two_different_concurrent_rows_one_is_inserted_and_the_other_reported(dataset: str) -> None:
    """Merges that only insert do not conflict on BigQuery: the table lock serialises them."""
    while True:
        server = shared()
        with Front(server.port) as front:
            try:
                return merge_two_rows_together(url_of(front, dataset))
            except StoreUnavailable:  # two queries at the same time sometimes crash the emulator
                if server.is_running():
                    raise


def merge_two_rows_together(url: str) -> None:
    houses = [prepared(url) for _ in range(2)]
    together = threading.Barrier(2)

    def put(house: ComparesRows, digest: str) -> tuple[str, ...]:
        together.wait()
        return tuple(house.merge(FACTS, [{"id": "a", "digest": digest}]).verdicts)

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(put, house, str(n)) for n, house in enumerate(houses)]
        verdicts = [verdict for one in found for verdict in one.result()]
    assert sorted(verdicts) == ["different", "inserted"]
    assert houses[0].query("SELECT COUNT(*) FROM facts WHERE id = ?", ["a"]) == [(1,)]
    for house in houses:
        house.close()


@pytest.mark.mission("D1")
def test_learning_records_on_bigquery(url: str, tmp_path: Path) -> None:
    with open_storage(tmp_path, url) as place:
        learning = place.learning
        one, other = parse_statement(statement()), parse_statement(statement(result={"success": True}))
        assert learning.store([one, one, other]).verdicts == ("inserted", "same", "different")
        with pytest.raises(PayloadMismatch):
            learning.store([parse_statement(statement("s2")), other], whole=True)
        assert learning.get(uuid("s2")) is None
        assert (learning.get(one.id) or {})["actor"] == one.content["actor"]
        learning.store([parse_statement(voiding("v", "s1"))])
        assert learning.get(one.id) is None
        assert learning.get(one.id, voided=True) is not None
        assert [found["id"] for found in Search.parse({"limit": "5"}).statements(learning.house)[0]] == [uuid("v")]
