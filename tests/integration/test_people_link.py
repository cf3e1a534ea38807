"""All records in one batch: the people are the same as after an import row by row."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.people_data import Maker, fake_1000
from onceward.errors import ConfigurationError
from onceward.people import People, SourceRecord
from onceward.people.splink_pairs import find_pairs
from tests.people_backends import BOTH, PROSPECTS, partition, people_url, record

SPARK = [
    pytest.mark.skipif(find_spec("pyspark") is None, reason="pip install 'pyspark<4'; `make soak` does it"),
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # pyspark leaves sockets open
]


def one_by_one(records: Sequence[SourceRecord], **settings: object) -> set[frozenset[tuple[str, str]]]:
    with People("sqlite://:memory:", **settings) as people:  # type: ignore[arg-type]
        people.add_many(records)
        return partition(people)


def stored_by_key(url: str, records: Sequence[SourceRecord]) -> None:
    with People(url, similarity=False) as people:
        people.add_many(records)


def rows_of(path: Path) -> list[tuple[object, ...]]:
    """Return everything that linking writes."""
    with sqlite3.connect(path) as connection:
        people = connection.execute("SELECT id, fields, merged_into FROM onceward_people ORDER BY id").fetchall()
        records = connection.execute("SELECT number, person, unit FROM onceward_contributions ORDER BY 1").fetchall()
        links = connection.execute("SELECT number, other, confidence FROM onceward_links ORDER BY 1, 2").fetchall()
        reviews = connection.execute("SELECT one, other, confidence FROM onceward_reviews ORDER BY 1, 2").fetchall()
    return [*people, *records, *links, *reviews]


@pytest.mark.finding("N63")
@pytest.mark.parametrize("backend", ["duckdb", pytest.param("spark", marks=SPARK)])
def test_a_batch_gives_the_same_people_as_an_import_and_changes_nothing_again(tmp_path: Path, backend: str) -> None:
    records = [one.record for one in fake_1000()]
    stored_by_key(f"sqlite:///{tmp_path}/people.db", records)
    with People(f"sqlite:///{tmp_path}/people.db") as people:
        seen: list[int] = []
        assert people.link(backend, progress=seen.append) == seen[-1] == len(records)
        assert partition(people) == one_by_one(records)
        before = rows_of(tmp_path / "people.db")
        people.link(backend)
        assert rows_of(tmp_path / "people.db") == before


@pytest.mark.parametrize("kind", BOTH)
def test_swapped_names_and_declared_rules_are_found(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    records = [one.record for one in Maker(3).records(60)]
    home = {"date_of_birth": "1980-02-03", "street": "Am Ring 3", "city": "Ulm"}
    records += [
        record("a", "1", name="Anna Schmidt", city="Berlin", country="DE"),
        record("b", "1", name="SCHMIDT, Anna", city="berlin", country="Germany"),
        record("a", "2", given_name="Kara", surname="Vesely", **home),
        record("b", "2", given_name="Vesely", surname="Kara", **home),
    ]
    url = people_url(kind, tmp_path, request)
    stored_by_key(url, records)
    with People(url, rules=PROSPECTS) as people:
        people.reindex()
        people.link()
        assert partition(people) == one_by_one(records, rules=PROSPECTS)
        assert {frozenset({("a", "1"), ("b", "1")}), frozenset({("a", "2"), ("b", "2")})} <= partition(people)


def test_records_that_arrive_or_change_meanwhile_are_compared_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def person(id: str, name: str) -> SourceRecord:
        return record("a", id, name=name, date_of_birth="1980-01-31", city="Berlin")

    url = f"sqlite:///{tmp_path}/people.db"
    stored_by_key(url, [person("1", "Anna Schmidt"), person("2", "Bernd Falk"), person("3", "Carla Winter")])

    def find_slowly(*arguments: object) -> object:
        stored_by_key(url, [person("4", "Anna Schmidt"), person("3", "Bernd Falk")])
        return find_pairs(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("onceward.people.linking.find_pairs", find_slowly)
    with People(url) as people:
        people.link()
        found = partition(people) - {frozenset()}  # Carla keeps her last known fields
        assert found == {frozenset({("a", "1"), ("a", "4")}), frozenset({("a", "2"), ("a", "3")})}


def test_answers_of_operators_decide_first(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/people.db"
    twin = {"name": "Anna Schmidt", "date_of_birth": "1980-01-31", "city": "Berlin"}
    stored_by_key(url, [record("a", "1", **twin), record("b", "1", **twin)])
    with People(url) as people:
        one, other = people
        people.reject(one.id, other.id)
        people.link()
        assert len(people) == 2


def test_an_unknown_backend_names_the_others(tmp_path: Path) -> None:
    with (
        People(f"sqlite:///{tmp_path}/people.db") as people,
        pytest.raises(ConfigurationError, match="choose from duckdb, spark"),
    ):
        people.link("dask")
