"""The same file read with other options or from another source is imported again, not reported as done."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.errors import SourceEdited
from onceward.imports import Counts, Progress, import_file
from onceward.people import People
from tests.imports.files import person, users, write


@pytest.mark.mission("D3")
def test_after_a_wrong_guess_the_right_encoding_corrects_what_was_read_wrongly(file: Path, people: People) -> None:
    file.write_bytes("email,Town\nanna@example.com,Łódź\n".encode("cp1250"))
    assert import_file(file, people).guessed
    corrected = import_file(file, people, encoding="cp1250")
    assert (corrected.replayed, corrected.counts) == (False, Counts(updated=1))
    assert person(people, "anna@example.com").of("csv") == [{"email": "anna@example.com", "Town": "Łódź"}]


def test_the_encoding_that_was_found_may_as_well_be_given(file: Path, people: People) -> None:
    import_file(write(file, users(3)), people)
    assert import_file(file, people, encoding="utf-8", delimiter=",", format="csv").replayed


def test_rows_that_were_too_long_go_in_when_longer_ones_are_allowed(file: Path, people: People) -> None:
    write(file, [("anna@example.com", "Anna Berg", "T" * 200)])
    assert import_file(file, people, largest_row=100).counts == Counts(rejected=1)
    assert import_file(file, people, largest_row=1000).counts == Counts(created=1)


@pytest.mark.mission("D2")
def test_the_same_content_from_another_source_is_imported_for_that_source_too(file: Path, people: People) -> None:
    write(file, users(1))
    import_file(file, people)
    assert import_file(file, people, source="hr").counts == Counts(updated=1)
    assert person(people, "u0@example.com").sources == ("csv", "hr")


@pytest.mark.fault("F75")
def test_an_import_resumed_in_another_encoding_is_noticed(file: Path, people: People) -> None:
    file.write_bytes(b"email,Town\n" + "".join(f"u{n}@example.com,Łódź\n" for n in range(6)).encode("cp1250"))

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt(progress)

    with pytest.raises(KeyboardInterrupt):
        import_file(file, people, batch=2, on_progress=stop)
    with pytest.raises(SourceEdited, match="other import options"):
        import_file(file, people, batch=2, encoding="cp1250")


@pytest.mark.mission("D3")
def test_an_id_that_looks_like_the_second_row_of_another_one_is_its_own(file: Path, people: People) -> None:
    header = ("external_id", "name")
    write(file, [("17", "Anna Berg"), ("17", "Anna M Berg"), ("17#2", "Otto Falk")], header)
    assert import_file(file, people).counts == Counts(created=2, updated=1)
    anna = people.find(external_id="17")
    assert anna is not None
    assert [part.fields["name"] for part in anna.contributions] == ["Anna Berg", "Anna M Berg"]


def test_blank_ids_name_no_row(file: Path, people: People) -> None:
    header = ("external_id", "email", "Team")
    rows = [(" ", "anna@example.com", "A"), (" ", "bo@example.com", "B")]
    import_file(write(file, rows, header), people, id="external_id")
    edited = write(file, [(" ", "bo@example.com", "C"), rows[0]], header)
    assert import_file(edited, people, id="external_id").counts == Counts(updated=1, skipped=1)
    assert [part["Team"] for part in person(people, "bo@example.com").of("csv")] == ["C"]
    assert [part["Team"] for part in person(people, "anna@example.com").of("csv")] == ["A"]
