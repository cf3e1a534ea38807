"""`onceward review`: pairs side by side, and answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.cli.exit_codes import Exit
from onceward.people import FIRST, People
from tests.cli.calls import as_json, call, line, on_a_terminal
from tests.people_backends import record

ANNA = {"name": "Anna Schmidt", "city": "Berlin", "country": "DE"}


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/people.db"
    with People(url, policies={"Room": FIRST}) as people:
        people.add(record("csv", "1", **ANNA, Room="1"))
        people.add(record("crm", "2", **ANNA | {"name": "Ana Schmidt"}, Room="2"))
    return url


def test_pairs_are_shown_side_by_side_with_what_each_field_is_worth(url: str) -> None:
    listed = call("review", "--people", url, "-o", "table")
    shown = listed.stdout
    assert listed.stderr.startswith("To answer: onceward review p")
    assert "p1 and p2: 62% likely the same person" in shown
    assert "Anna Schmidt" in shown
    assert "Ana Schmi" in shown
    assert "close" in shown
    [pair] = as_json("review", "--people", url)
    assert {pair["one"]["id"], pair["other"]["id"]} == {"p1", "p2"}
    assert {one["field"] for one in pair["evidence"]} == {"given_name", "surname", "city", "country"}


@pytest.mark.parametrize("others", [0, 7], ids=["the new id sorts last", "the new id sorts first"])
def test_compared_values_are_shown_below_the_person_they_belong_to(tmp_path: Path, others: int) -> None:
    url = f"sqlite:///{tmp_path}/people.db"
    with People(url) as people:
        for number in range(others):
            people.add(record("crm", str(number), email=f"{number}@example.com"))
        people.add(record("csv", "1", name="Katharina Vogt", date_of_birth="1990-07-12", city="Munich"))
        people.add(record("crm", "a", email="a@example.com"))
        people.add(record("crm", "b", email="b@example.com"))
        people.add(record("csv", "2", name="Katarina Vogt", date_of_birth="1990-07-12", city="Munich"))
    rows = call("review", "--people", url, "-o", "table").stdout.splitlines()
    [names] = [row.split()[1:4:2] for row in rows if row.startswith("name ")]
    [given_names] = [row.split()[1:3] for row in rows if row.startswith("given_name ")]
    assert given_names == [name.lower() for name in names]
    [pair] = as_json("review", "--people", url)
    [given] = [one for one in pair["evidence"] if one["field"] == "given_name"]
    assert pair["one"]["fields"]["name"].lower().startswith(given["here"] + " ")


def test_the_answer_is_remembered_and_merging_goes_by_the_policies_that_were_declared(url: str) -> None:
    unasked = call("review", "p2", "p1", "--same", "--people", url)
    assert (unasked.exit_code, unasked.stderr.splitlines()[-1]) == (
        Exit.REFUSED,
        "onceward: Merge these two? There is no terminal for the confirmation → use --yes",
    )
    assert "Ana Schmi" in unasked.stderr, "the merge is shown first"
    assert len(as_json("review", "--people", url)) == 1
    assert (
        call("review", "p2", "p1", "--same", "--yes", "--people", url).stderr.splitlines()[-1]
        == "p2 was merged into p1."
    )
    assert as_json("review", "--people", url) == []
    with People(url, policies={"Room": FIRST}) as people:
        [anna] = people
    assert anna.fields["Room"] == "1"


def test_a_wrong_merge_is_split_and_the_next_import_leaves_it_so(url: str) -> None:
    call("review", "p2", "p1", "--same", "--yes", "--people", url)
    shown = as_json("review", "p1", "--people", url)
    assert [(one["number"], one["source"], one["rule"]) for one in shown["records"]] == [
        (1, "csv", "new"),
        (2, "crm", "similarity"),
    ]
    assert "Ana Sch" in call("review", "p1", "--people", url, "-o", "table").stdout
    unasked = call("review", "--split", "p1", "--people", url)
    assert unasked.exit_code == Exit.REFUSED
    done = call("review", "--split", "p1", "--yes", "--people", url)
    assert done.stderr.splitlines()[-1] == "p1 was split, by records: p1 (1), p2 (2); they will not be merged again."
    with People(url, policies={"Room": FIRST}) as people:
        people.add(record("crm", "2", **ANNA | {"name": "Ana Schmidt"}, Room="3"))
        assert len(people) == 2
        assert people.reviews() == []


def test_one_record_can_be_split_off_and_a_person_without_records_is_reported(url: str) -> None:
    with People(url, policies={"Room": FIRST}) as people:
        people.add(record("hr", "1", email="falkberg@example.com", name="Carl Dorn"))
        people.add(record("hr", "2", email="falkberg@example.com", name="Dora Ernst"))
        people.add(record("csv", "1", name="Frank Gross", city="Paris", country="FR"))
    done = call("review", "p3", "--split", "--record", "4", "--yes", "--people", url)
    assert "p3 (3), p4 (4)" in done.stderr
    output = call("review", "--people", url).stderr
    assert output == "People without records, because these now belong to others: p1\n"


def test_different_people_are_kept_apart(url: str) -> None:
    assert line(call("review", "p2", "p1", "--different", "--people", url)) == "p2 and p1 stay separate."
    assert call("review", "--people", url, "-o", "table").stderr == "No pairs to review.\n"
    with People(url, policies={"Room": FIRST}) as people:
        assert len(people) == 2


def test_a_person_at_a_terminal_is_asked_pair_by_pair(url: str, tmp_path: Path) -> None:
    code, seen = on_a_terminal(tmp_path, "review", "--ask", "--people", url, typed=b"same\n")
    assert code == 0, seen
    assert b"p2 was merged into p1." in seen
    assert as_json("review", "--people", url) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("p1", "--same"), "--same and --different take two ids"),
        (("p1", "p2"), "--same and --different take two ids"),
        (("p1", "p2", "--split", "--yes"), "--split takes one id"),
        (("p1", "--record", "1"), "--record requires --split"),
        (("p9",), "there is no person 'p9'"),
        (("p1", "p9", "--same", "--yes"), "there is no person 'p9'"),
        (("--ask",), "needs a terminal"),
    ],
)
def test_what_cannot_be_done_says_why(url: str, words: tuple[str, ...], complaint: str) -> None:
    result = call("review", *words, "--people", url)
    assert result.exit_code != 0
    assert complaint in line(result)


def test_a_read_creates_no_file(tmp_path: Path) -> None:
    result = call("review", "--people", f"sqlite:///{tmp_path}/missing.db")
    assert result.exit_code != 0
    assert "does not exist" in line(result)
    assert list(tmp_path.iterdir()) == []
