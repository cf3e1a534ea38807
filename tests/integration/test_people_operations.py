"""Search, export, erase, train: what data engineers do with people."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.people_data import Maker
from onceward.errors import ConfigurationError, StoreBroken
from onceward.imports import import_file
from onceward.people import People, SourceRecord
from onceward.people.export import export
from onceward.people.similarity import Similarity
from tests.people_backends import BOTH, everything, partition, people_url, record

ANNA = {"name": "Anna Schmidt", "date_of_birth": "1980-01-31", "city": "Berlin"}


@pytest.fixture(params=BOTH)
def people(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[People]:
    with People(people_url(request.param, tmp_path, request)) as opened:
        yield opened


@pytest.mark.finding("N67")
def test_people_are_found_by_any_field(people: People) -> None:
    people.add_many(
        [record("crm", "1", **ANNA), record("crm", "2", name="Ana Müller", Team="Blau", email="b@b.example")]
    )
    assert [one.fields["name"] for one in people.search(name="schmidt")] == ["Anna Schmidt"]
    assert [one.fields["name"] for one in people.search(name="MULLER", Team="blau")] == ["Ana Müller"]
    assert [one.fields["name"] for one in people.search(email="B@B.example")] == ["Ana Müller"]
    assert len(people.search(name="an")) == 2
    assert len(people.search(1, name="an")) == 1
    assert people.search(name="nobody") == []
    with pytest.raises(ConfigurationError, match="at least one field"):
        people.search()


@pytest.mark.finding("N67")
def test_an_erased_person_leaves_nothing_behind(people: People) -> None:
    people.add_many([record("hr", "9", email="bo@example.com", name="Bo Falk", city="Oslo")])
    before = everything(people)
    person = people.add(record("crm", "1", email="anna@example.com", **ANNA)).person
    merged = people.add(record("web", "1", external_id="C-1")).person
    people.add(record("shop", "1", email="anna@example.com", external_id="C-1"))
    people.add(record("list", "1", **ANNA))
    people.add(record("list", "2", **ANNA | {"date_of_birth": "1980-01-30"}))
    assert people.delete(merged or "") == 4
    assert people.get(person or "") is None
    assert people.get(merged or "") is None
    [other] = people.search(date_of_birth="1980-01-30")
    people.delete(other.id)
    after = everything(people)
    del before[5], after[5]  # the counter of numbers
    assert after == before
    with pytest.raises(ConfigurationError, match="no person"):
        people.delete(person or "")


@pytest.mark.finding("N67")
def test_an_erased_person_is_imported_again_only_if_the_source_still_has_it(people: People, tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_text("Email,Name\nanna@example.com,Anna\nbo@example.com,Bo\n")
    import_file(file, people)
    found = people.find(email="anna@example.com")
    assert found is not None
    people.delete(found.id)
    with people.reading() as tx:
        assert tx.tables.run("SELECT key FROM {t}onceward_import_rows") == [("bo@example.com",)]
    assert import_file(file, people, again=True).counts.created == 1


@pytest.mark.finding("N67")
def test_the_evidence_of_a_merge_is_shown(people: People) -> None:
    people.add(record("crm", "1", **ANNA))
    person = people.add(record("web", "1", **ANNA | {"city": "Berlinn"})).person or ""
    [link] = people.links(person)
    assert (link.one, link.other) == (1, 2)
    assert link.confidence > 0.9
    assert {one.field: one.level for one in link.evidence}["city"] == "close"
    found = people.get(person)
    assert found is not None
    assert [one.field for one in found.contributions[1].evidence] == ["given_name", "surname", "date_of_birth", "city"]


@pytest.mark.finding("N67")
@pytest.mark.parametrize("ending", ["csv", "ndjson", "parquet"])
def test_golden_records_crosswalk_and_evidence_are_exported(people: People, tmp_path: Path, ending: str) -> None:
    people.add_many([record("crm", "1", **ANNA), record("web", "1", **ANNA), record("web", "2", email="b@b.example")])
    written = {what: tmp_path / f"{what}.{ending}" for what in ("golden", "crosswalk", "evidence")}
    counts = {what: export(people, path, what) for what, path in written.items()}
    assert counts == {"golden": 2, "crosswalk": 3, "evidence": 6}
    golden, crosswalk = (_rows(written[what]) for what in ("golden", "crosswalk"))
    assert {row["person"] for row in golden} == {row["person"] for row in crosswalk}
    assert sorted((row["source"], row["record"]) for row in crosswalk) == [("crm", "1"), ("web", "1"), ("web", "2")]
    assert [row["name"] for row in golden if row.get("name")] == ["Anna Schmidt"]
    with pytest.raises(ConfigurationError, match="cannot export 'golden' as 'xlsx'"):
        export(people, tmp_path / "golden.xlsx")


def _rows(path: Path) -> list[dict[str, str]]:
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    if path.suffix == ".ndjson":
        return [json.loads(line) for line in path.read_text().splitlines()]
    import duckdb

    found = duckdb.connect().execute("SELECT * FROM read_parquet(?)", [str(path)])
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.mark.finding("N65")
def test_a_trained_model_is_calibrated(people: People) -> None:
    """Of the pairs at about 0.5 to 0.9, as many must be right as the confidence says, up to a quarter."""
    known = Maker(21).records(300)
    people.add_many(one.record for one in known)
    model = people.train()
    assert model.records == len(known)
    entity = {(one.record.source, one.record.id): one.entity for one in known}
    forms = _forms(people)
    similarity = Similarity(people.preset, model)
    names = list(forms)
    found = []
    for n, one in enumerate(names):
        for other in names[:n]:
            sure = similarity.confidence(forms[one], forms[other])
            if sure > 0.05:
                found.append((sure, entity[one] == entity[other]))
    middle = [(sure, right) for sure, right in found if sure < 0.95]
    assert len(middle) > 20
    mean = sum(sure for sure, _ in middle) / len(middle)
    assert sum(right for _, right in middle) / len(middle) == pytest.approx(mean, abs=0.25)
    certain = [right for sure, right in found if sure > 0.99]
    assert sum(certain) / len(certain) > 0.98


def _forms(people: People) -> dict[tuple[str, str], tuple[str, ...]]:
    with people.reading() as tx:
        rows = tx.tables.run("SELECT source, record, form FROM {t}onceward_contributions")
    return {(source, id): tuple(json.loads(form)) for source, id, form in rows}


@pytest.mark.finding("N65")
def test_the_model_is_stored_and_used_by_everyone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/people.db"
    with People(url) as people:
        people.add_many(one.record for one in Maker(22).records(100))
        before = partition(people)
        model = people.train()
        people.relink()
        pairs = sum(len(one) > 1 for one in partition(people))
        assert pairs == pytest.approx(sum(len(one) > 1 for one in before), rel=0.1)
    with People(url) as other:
        other.add(SourceRecord("new", {"name": "Anna Schmidt"}))
        assert other.model == model


@pytest.mark.finding("N67")
def test_answers_teach(tmp_path: Path) -> None:
    with People(f"sqlite:///{tmp_path}/people.db") as people:
        people.add_many(one.record for one in Maker(23, error_rate=2.0).records(150))
        without = people.train()
        for question in people.reviews(200):
            people.reject(question.one.id, question.other.id, who="test")
        model = people.train()
        assert (without.answers, model.answers > 5) == (0, True)
        assert model.levels != without.levels


def test_too_few_records_keep_the_default_model() -> None:
    with People("sqlite://:memory:") as people:
        people.add(record("csv", **ANNA))
        assert people.train().records == 0


def test_relinking_changes_nothing_with_the_same_model(people: People) -> None:
    people.add_many(one.record for one in Maker(24).records(60))
    before = everything(people)
    people.relink()
    after = everything(people)
    del before[4], after[4]  # it may ask more questions: every pair is compared from both sides
    assert after == before


def test_tables_of_an_older_version_are_upgraded(tmp_path: Path) -> None:
    """The columns that version 1 lacked are added, and every person is one unit."""
    path = tmp_path / "people.db"
    with People(f"sqlite:///{path}") as people:
        people.add(record("crm", "1", email="anna@example.com", **ANNA))
    with closing(sqlite3.connect(path)) as old:
        for statement in (
            "ALTER TABLE onceward_contributions DROP COLUMN unit",
            "ALTER TABLE onceward_contributions DROP COLUMN has_keys",
            "ALTER TABLE onceward_person_keys DROP COLUMN unit",
            "DROP TABLE onceward_links",
            "UPDATE onceward_people_meta SET value = '1' WHERE name = 'version'",
        ):
            old.execute(statement)
        old.commit()
    with People(f"sqlite:///{path}") as people:
        assert people.add(record("web", "1", email="anna@example.com")).person == "p1"


def test_processes_of_earlier_builds_take_the_same_locks() -> None:
    """They did not quote the schema. During a deployment, both builds run."""
    from onceward.people.on_postgres import _lock_namespace

    assert _lock_namespace('"crm".') == _lock_namespace("crm.")


def test_tables_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "people.db"
    with People(f"sqlite:///{path}") as people:
        people.add(record("crm", "1", email="anna@example.com", **ANNA))
    with closing(sqlite3.connect(path)) as new:
        new.execute("UPDATE onceward_people_meta SET value = '99' WHERE name = 'version'")
        new.commit()
    with People(f"sqlite:///{path}") as people, pytest.raises(StoreBroken, match="version 99"):
        len(people)
