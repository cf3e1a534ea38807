"""`onceward people`: search, show, export, delete, answer, train and link."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.people_data import Maker
from onceward.cli.exit_codes import Exit
from onceward.people import UNTRUSTED, People
from tests.cli.calls import as_json, call
from tests.people_backends import record

ANNA = {"name": "Anna Schmidt", "date_of_birth": "1980-01-31", "city": "Berlin"}


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/people.db"
    with People(url) as people:
        people.add_many([record("csv", "1", **ANNA), record("crm", "2", **ANNA, email="anna@example.com")])
        people.add(record("crm", "3", **ANNA | {"date_of_birth": "1980-01-30"}))
    return url


@pytest.mark.finding("N67")
def test_people_are_searched_and_shown_with_the_evidence_of_every_merge(url: str) -> None:
    found = as_json("people", "search", "name=schmidt", "city=BERLIN", "--people", url)
    assert [one["id"] for one in found] == ["p1", "p3"]
    shown = as_json("people", "show", "p1", "--people", url)
    assert [one["source"] for one in shown["records"]] == ["csv", "crm"]
    assert shown["records"][1]["evidence"] != []
    [link] = shown["links"]
    assert {one["field"]: one["level"] for one in link["evidence"]}["date_of_birth"] == "equal"
    table = call("people", "show", "p1", "--people", url, "-o", "table").stdout
    assert "records 1 and 2: 100% likely the same person" in table
    assert call("people", "search", "schmidt", "--people", url).exit_code == Exit.USAGE
    assert "No one was found" in call("people", "search", "name=x", "--people", url, "-o", "table").stderr


@pytest.mark.finding("N67")
def test_people_are_exported(url: str, tmp_path: Path) -> None:
    done = call("people", "export", tmp_path / "golden.csv", "--people", url)
    assert (done.exit_code, done.stderr) == (0, f"2 rows were written to {tmp_path}/golden.csv.\n")
    done = call("people", "export", tmp_path / "x.txt", "--what", "crosswalk", "--format", "ndjson", "--people", url)
    assert done.exit_code == 0
    assert len((tmp_path / "x.txt").read_text().splitlines()) == 3


@pytest.mark.finding("N67")
def test_a_person_is_deleted_after_a_confirmation(url: str) -> None:
    assert call("people", "delete", "p1", "--people", url).exit_code == Exit.REFUSED
    assert call("people", "delete", "p1", "--yes", "--people", url).exit_code == 0
    assert [one["id"] for one in as_json("people", "search", "name=schmidt", "--people", url)] == ["p3"]
    assert call("people", "delete", "p1", "--yes", "--people", url).exit_code != 0


@pytest.mark.finding("N67")
def test_many_questions_are_answered_from_a_file(url: str, tmp_path: Path) -> None:
    answers = tmp_path / "answers.csv"
    answers.write_text("one,other,answer\np1,p3,same\np1,p99,same\np1,p3,perhaps\n")
    done = call("people", "answer", answers, "--people", url)
    assert done.exit_code == Exit.ATTENTION
    assert "line 3: there is no person 'p99'" in done.stderr
    assert "the answer 'perhaps' is unknown" in done.stderr
    assert "1 answers were stored, 2 were not." in done.stderr
    assert as_json("review", "--people", url) == []
    answers.write_text("a,b\n1,2\n")
    assert call("people", "answer", answers, "--people", url).exit_code == Exit.USAGE


@pytest.mark.finding("N65")
def test_the_model_is_trained_from_the_stored_records(url: str) -> None:
    assert call("people", "train", "--people", url).exit_code == Exit.ATTENTION
    with People(url) as people:
        people.add_many(one.record for one in Maker(31).records(80))
    done = call("people", "train", "--relink", "--people", url)
    assert done.exit_code == 0
    assert "Learned from" in done.stderr
    assert "records were compared again" in done.stderr


def test_stored_records_are_linked_in_one_batch(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/linked.db"
    with People(url, similarity=False) as people:
        people.add_many([record("csv", "1", **ANNA), record("crm", "2", **ANNA)])
    linked = as_json("people", "link", "--people", url)
    assert linked == {"records": 2, "people": 1, "people_before": 2, "questions": 0}
    done = call("people", "link", "--people", url, "-o", "table")
    assert (done.exit_code, done.stderr) == (0, "2 records were compared: 1 people, 1 before.\n")


@pytest.mark.finding("N67", "N37")
def test_fields_rules_and_trust_are_declared_on_the_command_line_and_stored(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/people.db"
    (tmp_path / "crm.csv").write_text("Name,Badge,external_id\nAnna Schmidt,12345,C-1\nBo Falk,99999,C-2\n")
    (tmp_path / "web.csv").write_text("Name,Badge,external_id\nAnna Schmidt,12345,\nEve,,C-2\n")
    words = ("--people", url, "--map", "Badge=badge")
    assert call("import", tmp_path / "crm.csv", "--source", "crm", "--field", "badge=number", *words).exit_code == 0
    assert call("import", tmp_path / "web.csv", "--source", "web", "--untrusted", *words).exit_code == 0
    found = as_json("people", "search", "name=schmidt", "--people", url)
    assert [one["sources"] for one in found] == [["crm", "web"]]
    [falk] = as_json("people", "search", "name=falk", "--people", url)
    assert falk["fields"]["name"] == "Bo Falk", "an untrusted row replaces no value"
    wrong = call("import", tmp_path / "web.csv", "--field", "x=colour", "--people", url)
    assert wrong.exit_code != 0
    assert "kinds are: key," in wrong.stderr
    from onceward.people.stored_declaration import open_declared_people

    with open_declared_people(url) as people:
        assert people.preset.trust == {"web": UNTRUSTED}
        assert "badge" in people.preset.fields
