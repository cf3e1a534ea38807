"""Import files into people: rows, columns, editions and formats. The same import again changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward import ConfigurationError
from onceward.errors import SourceError
from onceward.imports import Counts, import_file
from onceward.people import People, SourceRecord
from tests.imports.files import dump, person, rejected, users, word, write
from tests.people_backends import PROSPECTS


@pytest.mark.mission("C5", "D2")
def test_rows_become_people_and_unmapped_columns_are_kept(file: Path, people: People) -> None:
    write(file, [("Anna@Example.com", "Anna Berg", "UVM"), ("bo@example.com", "Bo Falk", "ABC")])
    summary = import_file(file, people)
    assert summary.counts == Counts(created=2)
    assert str(summary) == "created 2 / updated 0 / skipped 0 / rejected 0 / to review 0"
    anna = person(people, "anna@example.com")
    assert anna.sources == ("csv",)
    assert anna.of("csv") == [{"email": "Anna@Example.com", "name": "Anna Berg", "Team": "UVM"}]


@pytest.mark.mission("C5")
def test_the_same_e_mail_is_updated_and_so_is_the_same_name_city_and_country(file: Path) -> None:
    known = {"email": "anna@example.com", "name": "Annemarie Oberhofer", "city": "Zürich", "country": "CH"}
    people = People("sqlite://:memory:", rules=PROSPECTS)
    people.add(SourceRecord("crm", known, id="1"))
    header = ("Email", "Name", "City", "Country")
    rows = [
        ("ANNA@example.com", "", "", ""),
        ("", "Annemarie Oberhofer", "Zürich", "CH"),
        ("carl@example.com", "Carl Quist", "Malmö", "SE"),
    ]
    summary = import_file(write(file, rows, header), people)
    assert (summary.counts.updated, summary.counts.created) == (2, 1)
    assert len(people) == 2


@pytest.mark.mission("D3", "C7")
def test_the_same_file_again_changes_nothing_not_even_a_time(file: Path, people: People, database: Path) -> None:
    write(file, users(30))
    first = import_file(file, people)
    before = dump(database)
    again = import_file(file, people)
    assert (again.replayed, again.counts) == (True, first.counts)
    assert import_file(file, people, again=True).counts == Counts(skipped=30)
    assert dump(database) == before


@pytest.mark.mission("D3", "A1")
def test_a_renamed_file_is_the_same_file(file: Path, people: People, database: Path) -> None:
    import_file(write(file, users(5)), people)
    before = dump(database)
    assert import_file(file.rename(file.with_name("renamed.csv")), people).replayed
    assert dump(database) == before


@pytest.mark.mission("D3")
def test_an_edited_file_replaces_itself_row_by_row(file: Path, people: People) -> None:
    import_file(write(file, [("anna@example.com", "Anna", "UVM"), ("bo@example.com", "Bo", "X")]), people)
    counts = import_file(
        write(file, [("anna@example.com", "Anna", "NEW"), ("bo@example.com", "Bo", "X")]), people
    ).counts
    assert counts == Counts(updated=1, skipped=1)
    assert [one["Team"] for one in person(people, "anna@example.com").of("csv")] == ["NEW"]


@pytest.mark.mission("D3")
def test_a_file_that_was_changed_back_is_imported_again(file: Path, people: People) -> None:
    for team in ("UVM", "NEW", "UVM"):
        import_file(write(file, [("anna@example.com", "Anna", team)]), people)
    assert [one["Team"] for one in person(people, "anna@example.com").of("csv")] == ["UVM"]


@pytest.mark.mission("D3")
def test_another_file_merges_in(file: Path, people: People) -> None:
    import_file(write(file, [("anna@example.com", "Anna", "UVM")]), people)
    other = write(file.with_name("hr.csv"), [("anna@example.com", "B7")], ("Email", "Room"))
    assert import_file(other, people).counts == Counts(updated=1)
    anna = person(people, "anna@example.com")
    assert anna.fields == {"email": "anna@example.com", "name": "Anna", "Team": "UVM", "Room": "B7"}
    assert len(anna.of("csv")) == 2


@pytest.mark.mission("D3")
def test_several_rows_of_one_user_make_one_record_whatever_their_order(file: Path, people: People) -> None:
    one, two, three = (("anna@example.com", "Anna", team) for team in ("UVM", "ABC", "XYZ"))
    assert import_file(write(file, [one, two, one]), people).counts == Counts(created=1, updated=1, skipped=1)
    assert import_file(write(file, [two, one]), people).counts == Counts(skipped=2)
    assert import_file(write(file, [three, two]), people, batch=1).counts == Counts(updated=1, skipped=1)
    assert len(people) == 1
    assert sorted(part["Team"] for part in person(people, "anna@example.com").of("csv")) == ["ABC", "XYZ"]


def test_rows_are_named_by_the_columns_that_are_chosen(file: Path, people: People) -> None:
    header = ("No", "Email", "Name")
    import_file(write(file, [("1", "anna@example.com", "Anna Berg")], header), people, id="No")
    import_file(write(file, [("1", "anna.new@example.com", "Anna Berg")], header), people, id="No")
    assert len(people) == 1
    assert len(person(people, "anna.new@example.com").of("csv")) == 1


def test_ids_that_differ_in_case_only_name_two_rows_and_e_mails_one(file: Path, people: People) -> None:
    header = ("External ID", "Name")
    rows = [("aB", "Anna Berg"), ("Ab", "Carl Quist")]
    import_file(write(file, rows, header), people)
    ids = sorted(part.record for one in people for part in one.contributions)
    assert ids == ["csv/users.csv:Ab", "csv/users.csv:aB"]
    other = file.with_name("mails.csv")
    import_file(write(other, [("Dora@example.com", "", "A")]), people)
    assert import_file(write(other, [("dora@EXAMPLE.com", "", "A")]), people).counts == Counts(updated=1)
    assert [part["email"] for part in person(people, "dora@example.com").of("csv")] == ["dora@EXAMPLE.com"]


def test_editions_under_one_name_replace_each_other(file: Path, people: People) -> None:
    for month in ("01", "02"):
        edition = write(file.with_name(f"hr-{month}.csv"), [("anna@example.com", "Anna", month)])
        import_file(edition, people, name="hr")
    assert [one["Team"] for one in person(people, "anna@example.com").of("csv")] == ["02"]


def test_columns_are_mapped_ignored_and_found_by_their_names(file: Path, people: People) -> None:
    header = ("Mail", "E-Mail", "Given Name", "Password")
    write(file, [("anna@example.com", "", "Anna", "secret")], header)
    import_file(file, people, map={"Mail": "email"}, ignore=["E-Mail", "Password"])
    assert person(people, "anna@example.com").fields == {"email": "anna@example.com", "given_name": "Anna"}


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"map": {"E-mail": "email"}}, "there is no column 'E-mail' → did you mean 'Email'"),
        ({"ignore": ["Nope"]}, "there is no column 'Nope'"),
        ({"id": "No"}, "there is no column 'No'"),
        ({"map": {"Team": "email", "Email": "email"}}, "'Email' and 'Team' are both email"),
        ({"ignore": ["Email", "Name"]}, "no column identifies people"),
        ({"delimiter": ";;"}, "cannot separate cells"),
        ({"format": "xlsx"}, "no format 'xlsx'"),
    ],
)
def test_choices_that_do_not_fit_the_file_are_refused_before_anything(
    file: Path, people: People, choices: dict[str, Any], message: str
) -> None:
    write(file, users(2))
    with pytest.raises(SourceError, match=message.replace("?", r"\?")):
        import_file(file, people, **choices)
    assert len(people) == 0


def test_an_import_goes_into_people_and_its_rejects_into_a_file_of_their_own(file: Path, people: People) -> None:
    write(file, users(1))
    with pytest.raises(ConfigurationError, match="must be people, not int"):
        import_file(file, 5)  # type: ignore[arg-type]  # the subject
    with pytest.raises(ConfigurationError, match="the file to import itself"):
        import_file(file, people, rejects=file)
    with pytest.raises(ConfigurationError, match="batch is 0"):
        import_file(file, people, batch=0)


# ── dry runs ──


@pytest.mark.parametrize("before", [0, 20])
def test_a_dry_run_counts_what_the_real_one_does_and_changes_nothing(file: Path, people: People, before: int) -> None:
    if before:
        import_file(write(file.with_name("old.csv"), users(before)), people, name="users.csv")
    rows = [*users(40), *users(3), ("bad", "", ""), ("anna@example.com", "Anna", "1"), ("anna@example.com", "A", "2")]
    write(file, rows)
    known = len(people)
    trial = import_file(file, people, dry_run=True, batch=7)
    assert (trial.dry_run, len(people)) == (True, known)
    assert trial.rejects is not None
    assert [row[0] for row in rejected(Path(trial.rejects))] == ["45"]
    real = import_file(file, people, batch=7)
    assert real.rejects is not None
    assert real.rejects != trial.rejects, "the real run has its own reject file"
    assert rejected(Path(real.rejects)) == rejected(Path(trial.rejects))
    assert not real.replayed
    assert trial.counts == real.counts
    assert real.counts.rows == len(rows)


def test_a_dry_run_needs_no_database_and_makes_none(file: Path, database: Path) -> None:
    write(file, users(3))
    assert import_file(file, f"sqlite:///{database}", dry_run=True).counts == Counts(created=3)
    assert not database.exists()


# ── other formats ──


def test_ndjson_goes_in_like_csv(tmp_path: Path, people: People) -> None:
    file = tmp_path / "users.ndjson"
    file.write_text(
        '{"email": "anna@example.com", "name": "Anna Berg", "tags": ["a", "b"]}\n'
        '{"E-Mail": "bo@example.com", "email": "bo2@example.com"}\n'
        "nonsense\n"
        '{"E-Mail": "carl@example.com"}\n'
    )
    summary = import_file(file, people)
    assert summary.counts == Counts(created=2, rejected=2)
    assert person(people, "anna@example.com").of("csv")[0]["tags"] == '["a","b"]'
    assert summary.rejects is not None
    assert [row[0] for row in rejected(Path(summary.rejects))] == ["2", "3"]
    assert "'E-Mail' and 'email' are both email" in rejected(Path(summary.rejects))[0][1]


def test_parquet_goes_in_like_csv(tmp_path: Path, people: People) -> None:
    duckdb = pytest.importorskip("duckdb")
    file = tmp_path / "users.parquet"
    rows = ", ".join(f"('u{n}@example.com', '{word(n)} {word(n + 5000)}', {n})" for n in range(2500))
    duckdb.connect().execute(
        f'COPY (SELECT * FROM (VALUES {rows}) AS t ("Email", "Name", "Team")) TO \'{file}\' (FORMAT parquet)'
    )
    assert import_file(file, people).counts == Counts(created=2500)
    assert import_file(file, people).replayed
