"""Importing files into people: the good rows go in, the bad ones are told, and the same again changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward import AlreadyRunning, ConfigurationError, RetryTransaction, SourceEdited, SourceError
from onceward.identity import People, SourceRecord
from onceward.imports import Counts, Progress, import_file, ledger
from onceward.imports.people import PeopleTaking
from onceward.imports.progress import bar
from tests.imports.files import dump, person, rejected, users, word, write


class Halt(BaseException):
    """A crash, as far as one process can have it."""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "people.db"


@pytest.fixture
def people(database: Path) -> Any:
    with People(f"sqlite:///{database}") as people:
        yield people


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users.csv"


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
def test_the_same_e_mail_is_updated_and_so_is_the_same_name_city_and_country(file: Path, people: People) -> None:
    known = {"email": "anna@example.com", "name": "Annemarie Oberhofer", "city": "Zürich", "country": "CH"}
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
        ({"ignore": ["Email", "Name"]}, "no column tells people apart"),
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
    with pytest.raises(ConfigurationError, match="into people, not into int"):
        import_file(file, 5)  # type: ignore[arg-type]  # the subject
    with pytest.raises(ConfigurationError, match="the file to import itself"):
        import_file(file, people, rejects=file)
    with pytest.raises(ConfigurationError, match="batch of 0"):
        import_file(file, people, batch=0)


# ── rejects ──


def test_good_rows_go_in_bad_rows_land_in_the_reject_file_and_nothing_is_lost(file: Path, people: People) -> None:
    rows = [*users(5), ("no e-mail", "X", "Y"), ("", "", "lonely"), ("too", "few"), *users(5, begin=5)]
    summary = import_file(write(file, rows), people, batch=4)
    assert summary.counts == Counts(created=10, rejected=3)
    assert summary.counts.rows == len(rows)
    assert summary.rejects is not None
    found = rejected(Path(summary.rejects))
    assert [(row[0], row[2:]) for row in found] == [
        ("7", ["no e-mail", "X", "Y"]),
        ("8", ["", "", "lonely"]),
        ("9", ["too", "few"]),
    ]
    assert [row[1].split(":")[0] for row in found] == [
        "email",
        "none of the fields that tell people apart is filled",
        "has 2 cells where the header has 3",
    ]


def test_the_reject_file_is_safe_to_open_and_can_be_mended_and_imported(file: Path, people: People) -> None:
    header = ("Email", "Phone", "=cmd")
    write(file, [("broken", "+49 30 123456", "=1+1"), ("@SUM(A1)", "-1", "'=x")], header)
    summary = import_file(file, people, ignore=[])
    assert summary.rejects is not None
    path = Path(summary.rejects)
    text = path.read_text(encoding="utf-8")
    for row in rejected(path):
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row), row
    mended = path.with_name("mended.csv")
    mended.write_text(text.replace("broken", "anna@example.com").replace("'@SUM(A1)", "bo@example.com"))
    assert import_file(mended, people).counts == Counts(created=2)
    assert person(people, "anna@example.com").of("csv") == [
        {"email": "anna@example.com", "phone": "+49 30 123456", "=cmd": "=1+1"}
    ]
    assert person(people, "bo@example.com").of("csv")[0]["=cmd"] == "'=x"


def test_a_rejected_row_is_tried_again_with_the_next_edition(file: Path, people: People) -> None:
    bad = ("no e-mail", "X", "Y")
    assert import_file(write(file, [bad, bad, *users(1)]), people).counts == Counts(created=1, rejected=2)
    assert import_file(write(file, [bad, *users(2)]), people).counts == Counts(created=1, skipped=1, rejected=1)


def test_rejects_that_cannot_be_written_keep_their_batch_out(file: Path, people: People) -> None:
    write(file, [*users(4), ("bad", "", "")])
    with pytest.raises(SourceError, match=r"rejected rows cannot be written to .*nowhere"):
        import_file(file, people, rejects=file.parent / "nowhere" / "bad.csv", batch=3)
    assert len(people) == 3, "the first batch had none"
    (file.parent / "nowhere").mkdir()
    assert import_file(file, people, batch=3).counts == Counts(created=4, rejected=1)


def test_a_file_without_bad_rows_leaves_no_reject_file(file: Path, people: People) -> None:
    assert import_file(write(file, users(2)), people).rejects is None
    assert [path.name for path in file.parent.glob("*.rejected*")] == []


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
    assert real.rejects != trial.rejects, "the one of the real run is its own"
    assert rejected(Path(real.rejects)) == rejected(Path(trial.rejects))
    assert not real.replayed
    assert trial.counts == real.counts
    assert real.counts.rows == len(rows)


def test_a_dry_run_needs_no_database_and_makes_none(file: Path, database: Path) -> None:
    write(file, users(3))
    assert import_file(file, f"sqlite:///{database}", dry_run=True).counts == Counts(created=3)
    assert not database.exists()


# ── progress and resuming ──


def test_progress_is_told_after_every_batch(file: Path, people: People) -> None:
    told: list[Progress] = []
    import_file(write(file, users(25)), people, batch=10, tell=told.append)
    assert [one.rows for one in told] == [10, 20, 25]
    assert told[-1].share == 1.0
    assert bar(told[-1]).startswith("users.csv  ████")


def test_the_bar_shows_rate_and_time_left() -> None:
    half = Progress("users.csv", 500, 5_000, 10_000, 2.0, 500)
    assert bar(half, 10) == "users.csv  █████░░░░░   50%   500 rows   250 rows/s   0:02 left"
    resumed = Progress("users.csv", 900, 9_000, 10_000, 10.0, 100, 8_000)
    assert (resumed.rate, resumed.seconds_left) == (10.0, 10.0)
    assert bar(Progress("x", 0, 0, 10_000_000, 0.0, 0)).endswith("0 rows/s   -:-- left")
    assert bar(Progress("x", 1, 1, 10_000, 1.0, 1)).endswith("2:46:39 left")


@pytest.mark.fault("F31")
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_an_interrupted_import_goes_on_where_it_stopped(file: Path, people: People, database: Path, at: int) -> None:
    rows = [*users(9), ("bad", "", ""), *users(9, begin=9), ("bad too", "", "")]
    write(file, rows)
    told: list[Progress] = []

    def crash(progress: Progress) -> None:
        told.append(progress)
        if len(told) > at:
            raise Halt

    with pytest.raises(Halt):
        import_file(file, people, batch=5, tell=crash)
    done = told[-1].rows
    summary = import_file(file, people, batch=5, tell=told.append)
    assert summary.resumed_at == done == 5 * (at + 1)
    assert told[at + 1 :][0].rows > done if done < len(rows) else True
    assert summary.counts == Counts(created=18, rejected=2)
    assert summary.rejects is not None
    assert [row[0] for row in rejected(Path(summary.rejects))] == ["11", "21"]
    assert len(people) == 18


@pytest.mark.fault("F75")
def test_a_file_that_was_edited_between_kill_and_resume_is_noticed(file: Path, people: People) -> None:
    def crash(progress: Progress) -> None:
        raise Halt

    write(file, users(10))
    with pytest.raises(Halt):
        import_file(file, people, batch=4, tell=crash)
    write(file, users(11))
    with pytest.raises(SourceEdited, match=r"users.csv was edited since its import stopped behind row 4 .*restart"):
        import_file(file, people)
    assert len(people) == 4
    assert import_file(file, people, restart=True).counts == Counts(created=7, skipped=4)


@pytest.mark.fault("F75")
def test_a_file_that_is_edited_while_it_is_imported_is_noticed(file: Path, people: People) -> None:
    def edit(progress: Progress) -> None:
        with file.open("a") as out:
            out.write("late@example.com,Late,T\n")

    write(file, users(10))
    with pytest.raises(SourceEdited, match=r"edited while it was imported: 1\d rows"):
        import_file(file, people, batch=5, tell=edit)
    with pytest.raises(SourceEdited, match="edited since its import stopped"):
        import_file(file, people)
    lines = len(file.read_text().splitlines()) - 1
    assert import_file(file, people, restart=True).counts.rows == lines
    assert len(people) == 11


@pytest.mark.fault("F75")
def test_other_columns_than_those_it_was_begun_with_are_noticed(file: Path, people: People) -> None:
    def crash(progress: Progress) -> None:
        raise Halt

    write(file, users(10))
    with pytest.raises(Halt):
        import_file(file, people, batch=4, tell=crash)
    with pytest.raises(SourceEdited, match="with other choices"):
        import_file(file, people, ignore=["Team"])


def test_two_that_import_one_file_at_once_do_nothing_twice(file: Path, people: People, database: Path) -> None:
    """The other one comes while we are between two batches; we notice before we have changed anything."""
    rows = [*users(20), ("bad", "", "")]
    write(file, rows)
    other: list[Counts] = []

    def interfere(progress: Progress) -> None:
        if not other:
            with People(f"sqlite:///{database}") as theirs:
                other.append(import_file(file, theirs, batch=5).counts)

    with pytest.raises(AlreadyRunning, match=r"another import of users\.csv went on behind row 5"):
        import_file(file, people, batch=5, tell=interfere)
    assert other == [Counts(created=20, rejected=1)]
    assert len(people) == 20
    assert import_file(file, people).replayed


def test_one_that_comes_back_while_another_is_still_at_it_stops_before_it_changes_anything(
    file: Path, people: People, database: Path
) -> None:
    write(file, [*users(19), ("bad", "", "")])
    theirs: list[Progress] = []

    def a_little(progress: Progress) -> None:
        theirs.append(progress)
        if progress.rows == 15:
            raise Halt

    def interfere(progress: Progress) -> None:
        with People(f"sqlite:///{database}") as other, pytest.raises(Halt):
            import_file(file, other, batch=5, tell=a_little)

    with pytest.raises(AlreadyRunning, match="went on behind row 5"):
        import_file(file, people, batch=5, tell=interfere)
    assert [one.rows for one in theirs] == [10, 15]
    done = import_file(file, people, batch=5)
    assert (done.resumed_at, done.counts) == (15, Counts(created=19, rejected=1))


def test_what_a_crash_left_in_the_reject_file_is_cut_off(file: Path, people: People) -> None:
    def crash(progress: Progress) -> None:
        raise Halt

    write(file, [("bad 1", "", ""), *users(4), ("bad 2", "", "")])
    with pytest.raises(Halt):
        import_file(file, people, batch=3, tell=crash)
    (path,) = file.parent.glob("*.rejected*")
    with path.open("a") as out:
        out.write("7,half a li")
    summary = import_file(file, people, batch=3)
    assert [row[2] for row in rejected(path)] == ["bad 1", "bad 2"]
    assert summary.counts.rejected == 2


@pytest.mark.fault("F55")
def test_a_batch_that_others_were_in_the_way_of_is_repeated_and_its_rejects_are_not(
    file: Path, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, [("bad 1", "", ""), *users(4), ("bad 2", "", "")])
    count, refusals = ledger.count, [1, 2, 3]

    def refused(tx: Any, entry: ledger.Entry) -> None:
        """The last statement of a batch: its rejects are written."""
        count(tx, entry)
        if refusals and entry.done == 6:
            refusals.pop()
            raise RetryTransaction("another transaction was faster")

    monkeypatch.setattr(ledger, "count", refused)
    summary = import_file(file, people, batch=3)
    assert (refusals, summary.counts) == ([], Counts(created=4, rejected=2))
    assert summary.rejects is not None
    assert [row[0] for row in rejected(Path(summary.rejects))] == ["2", "7"]


def test_a_reject_file_that_is_gone_is_told_and_not_forgotten(file: Path, people: People) -> None:
    def crash(progress: Progress) -> None:
        raise Halt

    write(file, [("bad 1", "", ""), *users(4), ("bad 2", "", "")])
    with pytest.raises(Halt):
        import_file(file, people, batch=3, tell=crash)
    (path,) = file.parent.glob("*.rejected*")
    path.unlink()
    with pytest.raises(SourceError, match="bytes of rejected rows, and does not any more"):
        import_file(file, people)


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


def test_of_two_that_claim_one_file_at_once_one_is_told(people: People, file: Path) -> None:
    """Both have seen that nobody has it."""
    import_file(write(file, users(1)), people)  # makes the tables
    wanted = ledger.Claim("csv/new.csv", "content", "columns")
    with people.transaction() as within:
        tx = PeopleTaking(within)
        first = ledger.claim(tx, None, wanted, "")
        assert first is not None
        assert ledger.move_on(tx, first, 10)
        assert ledger.claim(tx, None, wanted, "") is None
        found = ledger.find(tx, "csv/new.csv")
        assert found is not None
        assert (found.done, found.cycle) == (10, 1), "what the other one has done is not begun anew"
