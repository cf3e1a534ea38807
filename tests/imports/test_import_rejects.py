"""Rows that cannot be imported go to the reject file: all of them, once, even if the import or the file fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward import RetryTransaction
from onceward.errors import SourceError
from onceward.imports import Counts, import_file, ledger
from onceward.people import People
from tests.imports.crashes import Halt, crash_at_once
from tests.imports.files import person, rejected, users, write


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
        "it has no value in any of the fields that identify a person",
        "has 2 cells where the header has 3",
    ]


def test_the_reject_file_is_safe_to_open_and_can_be_corrected_and_imported(file: Path, people: People) -> None:
    header = ("Email", "Call", "=cmd")
    write(file, [("broken", "+49 30 123456", "=1+1"), ("@SUM(A1)", "-1", "'=x")], header)
    summary = import_file(file, people, ignore=[])
    assert summary.rejects is not None
    path = Path(summary.rejects)
    text = path.read_text(encoding="utf-8")
    for row in rejected(path):
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row), row
    corrected = path.with_name("corrected.csv")
    corrected.write_text(text.replace("broken", "anna@example.com").replace("'@SUM(A1)", "bo@example.com"))
    assert import_file(corrected, people).counts == Counts(created=2)
    assert person(people, "anna@example.com").of("csv") == [
        {"email": "anna@example.com", "Call": "+49 30 123456", "=cmd": "=1+1"}
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


# ── when the import stops ──


def test_what_a_crash_left_in_the_reject_file_is_cut_off(file: Path, people: People) -> None:
    write(file, [("bad 1", "", ""), *users(4), ("bad 2", "", "")])
    with pytest.raises(Halt):
        import_file(file, people, batch=3, on_progress=crash_at_once)
    (path,) = file.parent.glob("*.rejected*")
    with path.open("a") as out:
        out.write("7,half a li")
    summary = import_file(file, people, batch=3)
    assert [row[2] for row in rejected(path)] == ["bad 1", "bad 2"]
    assert summary.counts.rejected == 2


@pytest.mark.fault("F55")
def test_a_batch_that_conflicts_is_repeated_and_its_rejects_are_not(
    file: Path, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, [("bad 1", "", ""), *users(4), ("bad 2", "", "")])
    count, refusals = ledger.save_counts, [1, 2, 3]

    def refused(tx: Any, entry: ledger.LedgerEntry) -> None:
        """Fail the last statement of a batch, after its rejects are written."""
        count(tx, entry)
        if refusals and entry.done == 6:
            refusals.pop()
            raise RetryTransaction("another transaction was faster")

    monkeypatch.setattr(ledger, "save_counts", refused)
    summary = import_file(file, people, batch=3)
    assert (refusals, summary.counts) == ([], Counts(created=4, rejected=2))
    assert summary.rejects is not None
    assert [row[0] for row in rejected(Path(summary.rejects))] == ["2", "7"]


def test_a_missing_reject_file_is_reported_and_not_forgotten(file: Path, people: People) -> None:
    write(file, [("bad 1", "", ""), *users(4), ("bad 2", "", "")])
    with pytest.raises(Halt):
        import_file(file, people, batch=3, on_progress=crash_at_once)
    (path,) = file.parent.glob("*.rejected*")
    path.unlink()
    with pytest.raises(SourceError, match="bytes of rejected rows, but is missing"):
        import_file(file, people)


HOSTILE_TEXT = "Email,Name\na@example.com,Anna\nb@example.com,B{}o\nc@example.com,Carl\n"


@pytest.mark.finding("N38")
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize("half", [0xD800, 0xDFFF, 0xDC80])
def test_half_of_a_character_rejects_its_row_and_the_rest_goes_in(
    file: Path, people: People, encoding: str, half: int
) -> None:
    file.write_bytes(f"\ufeff{HOSTILE_TEXT.format(chr(half))}".encode(encoding, "surrogatepass"))
    summary = import_file(file, people)
    assert summary.counts == Counts(created=2, rejected=1)
    assert rejected(Path(str(summary.rejects)))[0][0::2] == ["3", "b@example.com"]
    assert import_file(file, people).replayed


@pytest.mark.finding("N38")
@pytest.mark.parametrize(
    "number", ["1e99999999999999999999", "-1e-99999999999999999999", "[1e99999999999999999999]", "9" * 5_000, "NaN"]
)
def test_a_number_that_python_cannot_hold_rejects_its_row_and_the_rest_goes_in(
    tmp_path: Path, people: People, number: str
) -> None:
    file = tmp_path / "users.ndjson"
    lines = ['{"email":"a@example.com"}', f'{{"email":"b@example.com","n":{number}}}', '{"email":"c@example.com"}']
    file.write_text("\n".join(lines))
    summary = import_file(file, people)
    assert summary.counts == Counts(created=2, rejected=1)
    assert rejected(Path(str(summary.rejects)))[0][0] == "2"
