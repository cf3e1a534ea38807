"""An import resumes where it stopped, runs in one process at a time, and notices changes made meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward import AlreadyRunning
from onceward.errors import SourceEdited
from onceward.imports import Counts, Progress, import_file, ledger
from onceward.imports.progress import bar
from onceward.people import People
from tests.imports.crashes import Halt, crash_at_once
from tests.imports.files import rejected, users, write


def test_progress_is_reported_after_every_batch(file: Path, people: People) -> None:
    reported: list[Progress] = []
    import_file(write(file, users(25)), people, batch=10, on_progress=reported.append)
    assert [one.rows for one in reported] == [10, 20, 25]
    assert reported[-1].share == 1.0
    assert bar(reported[-1]).startswith("users.csv  ████")


def test_the_bar_shows_rate_and_time_left() -> None:
    half = Progress("users.csv", 500, 5_000, 10_000, 2.0, 500)
    assert bar(half, 10) == "users.csv  █████░░░░░   50%   500 rows   250 rows/s   0:02 left"
    resumed = Progress("users.csv", 900, 9_000, 10_000, 10.0, 100, 8_000)
    assert (resumed.rate, resumed.seconds_left) == (10.0, 10.0)
    assert bar(Progress("x", 0, 0, 10_000_000, 0.0, 0)).endswith("0 rows/s   -:-- left")
    assert bar(Progress("x", 1, 1, 10_000, 1.0, 1)).endswith("2:46:39 left")


@pytest.mark.fault("F31")
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_an_interrupted_import_resumes_where_it_stopped(file: Path, people: People, database: Path, at: int) -> None:
    rows = [*users(9), ("bad", "", ""), *users(9, begin=9), ("bad too", "", "")]
    write(file, rows)
    reported: list[Progress] = []

    def crash(progress: Progress) -> None:
        reported.append(progress)
        if len(reported) > at:
            raise Halt

    with pytest.raises(Halt):
        import_file(file, people, batch=5, on_progress=crash)
    done = reported[-1].rows
    summary = import_file(file, people, batch=5, on_progress=reported.append)
    assert summary.resumed_at == done == 5 * (at + 1)
    assert reported[at + 1 :][0].rows > done if done < len(rows) else True
    assert summary.counts == Counts(created=18, rejected=2)
    assert summary.rejects is not None
    assert [row[0] for row in rejected(Path(summary.rejects))] == ["11", "21"]
    assert len(people) == 18


@pytest.mark.fault("F75")
def test_a_file_that_was_edited_between_kill_and_resume_is_noticed(file: Path, people: People) -> None:
    write(file, users(10))
    with pytest.raises(Halt):
        import_file(file, people, batch=4, on_progress=crash_at_once)
    write(file, users(11))
    with pytest.raises(SourceEdited, match=r"users.csv was edited since its import stopped after row 4 .*restart"):
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
        import_file(file, people, batch=5, on_progress=edit)
    with pytest.raises(SourceEdited, match="edited since its import stopped"):
        import_file(file, people)
    lines = len(file.read_text().splitlines()) - 1
    assert import_file(file, people, restart=True).counts.rows == lines
    assert len(people) == 11


@pytest.mark.fault("F75")
def test_other_columns_than_those_it_was_begun_with_are_noticed(file: Path, people: People) -> None:
    write(file, users(10))
    with pytest.raises(Halt):
        import_file(file, people, batch=4, on_progress=crash_at_once)
    with pytest.raises(SourceEdited, match="has other import options"):
        import_file(file, people, ignore=["Team"])


def test_two_concurrent_imports_of_one_file_do_nothing_twice(file: Path, people: People, database: Path) -> None:
    """The other import starts between two of our batches; ours notices before it changes anything."""
    rows = [*users(20), ("bad", "", "")]
    write(file, rows)
    other: list[Counts] = []

    def interfere(progress: Progress) -> None:
        if not other:
            with People(f"sqlite:///{database}") as theirs:
                other.append(import_file(file, theirs, batch=5).counts)

    with pytest.raises(AlreadyRunning, match=r"another import of users\.csv continued after row 5"):
        import_file(file, people, batch=5, on_progress=interfere)
    assert other == [Counts(created=20, rejected=1)]
    assert len(people) == 20
    assert import_file(file, people).replayed


def test_an_importer_that_comes_back_while_another_is_running_stops_before_it_changes_anything(
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
            import_file(file, other, batch=5, on_progress=a_little)

    with pytest.raises(AlreadyRunning, match="continued after row 5"):
        import_file(file, people, batch=5, on_progress=interfere)
    assert [one.rows for one in theirs] == [10, 15]
    done = import_file(file, people, batch=5)
    assert (done.resumed_at, done.counts) == (15, Counts(created=19, rejected=1))


def test_of_two_concurrent_claims_of_one_file_one_is_refused(people: People, file: Path) -> None:
    """Both have seen that the file is not claimed."""
    import_file(write(file, users(1)), people)  # creates the tables
    wanted = ledger.ImportClaim("csv/new.csv", "content", "columns")
    with people.transaction() as within:
        tx = within.tables
        first = ledger.claim(tx, None, wanted, "")
        assert first is not None
        assert ledger.advance(tx, first, 10)
        assert ledger.claim(tx, None, wanted, "") is None
        found = ledger.find(tx, "csv/new.csv")
        assert found is not None
        assert (found.done, found.cycle) == (10, 1), "the work of the other import is not redone"
