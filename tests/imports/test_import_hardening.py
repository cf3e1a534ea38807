"""A bad field costs the field, a bad row costs the row, and neither costs the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.errors import ConfigurationError, SourceError
from onceward.imports import Counts, import_file
from onceward.imports.editions import earlier_edition, suggested_name
from onceward.imports.locale import detect_order, iso_date
from onceward.imports.reject_file import escape_formula, unescape_formulas
from onceward.people import People
from tests.cli.calls import call
from tests.imports.files import rejected, users, write


@pytest.mark.finding("N38")
def test_half_a_character_in_utf_16_costs_its_row_only(file: Path, people: People) -> None:
    text = "Email,Name\nanna@example.com,Anna\nbo@example.com,B\ud800o\ncarl@example.com,Carl\n"
    file.write_bytes(text.encode("utf-16", "surrogatepass"))
    summary = import_file(file, people)
    assert summary.counts == Counts(created=2, rejected=1)
    assert summary.rejects is not None
    assert [row[2] for row in rejected(Path(summary.rejects))] == ["bo@example.com"]


@pytest.mark.finding("N38")
@pytest.mark.parametrize("value", ["1e99999999999999999999", "1e-99999999999999999999", "9" * 5_000])
def test_a_number_of_any_size_costs_at_most_its_row(tmp_path: Path, people: People, value: str) -> None:
    file = tmp_path / "users.ndjson"
    file.write_text(
        f'{{"email": "a@example.com"}}\n{{"email": "b@example.com", "n": {value}}}\n{{"email": "c@example.com"}}\n'
    )
    summary = import_file(file, people)
    assert summary.counts.created + summary.counts.rejected == 3
    assert people.find(email="c@example.com") is not None


@pytest.mark.finding("N40")
@pytest.mark.parametrize(
    "cell", ["x;=cmd|' /C calc'!A0", "a\t=1+1", "a;;@SUM(A1)", 'a;"=1"', "a\n-1", "a|+1", "=1", "a;'=1"]
)
def test_no_cell_starts_a_formula_whatever_separates_cells(cell: str) -> None:
    escaped = escape_formula(cell)
    for separator in ";,|\t\n":
        for part in escaped.split(separator):
            assert not part.lstrip('" ').startswith(("=", "+", "-", "@")), part
    assert unescape_formulas([escaped]) == [cell]


@pytest.mark.finding("N40")
def test_a_symbolic_link_in_place_of_the_reject_file_is_refused(file: Path, people: People) -> None:
    target = file.parent / "secret"
    target.write_text("")
    link = file.parent / "rejected.csv"
    link.symlink_to(target)
    write(file, [*users(1), ("bad", "", "")])
    with pytest.raises(SourceError, match="it is a symbolic link"):
        import_file(file, people, rejects=link)
    assert target.read_text() == ""


@pytest.mark.finding("N61")
def test_a_column_may_be_mapped_to_street(file: Path, people: People) -> None:
    write(file, [("anna@example.com", "Hauptstr. 5")], ("Email", "Address"))
    assert import_file(file, people, map={"Address": "street"}).counts.created == 1
    found = people.find(email="anna@example.com")
    assert found is not None
    assert found.fields["street"] == "Hauptstr. 5"
    with pytest.raises(SourceError, match="nearly 'street'"):
        import_file(write(file, [("a@example.com", "x")], ("Email", "Home")), people, map={"Home": "stret"})


@pytest.mark.finding("N66")
def test_a_malformed_address_costs_only_the_field_if_the_row_identifies_a_person(file: Path, people: People) -> None:
    rows = [("no address", "Anna Schmidt", "1980-01-31", "Berlin"), ("bad", "Bo", "", "")]
    write(file, rows, ("Email", "Name", "date_of_birth", "City"))
    summary = import_file(file, people)
    assert summary.counts == Counts(created=1, rejected=1)
    assert summary.ignored == {"email": 1}
    [anna] = people.search(name="schmidt")
    assert (anna.keys, anna.fields["email"]) == ((), "no address")


@pytest.mark.finding("N66")
def test_american_dates_and_phones_are_read_as_such(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/people.db"
    (tmp_path / "us.csv").write_text(
        "Name,date_of_birth,Phone,City\n"
        "Anna Schmidt,01/31/1980,(212) 555-0134,Boston\n"
        "Bo Falk,03/04/1980,212-555-0199,Boston\n"
    )
    done = call("import", tmp_path / "us.csv", "--country", "US", "--people", url, "-o", "table")
    assert "dates were read as mdy (detected)" in done.stdout
    with People(url) as people:
        [bo] = people.search(name="falk")
        assert (bo.fields["date_of_birth"], bo.fields["phone"]) == ("1980-03-04", "+12125550199")


@pytest.mark.finding("N66")
def test_phones_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    (tmp_path / "us.csv").write_text("Name,Phone,City\nAnna Schmidt,(212) 555-0134,Boston\n")
    done = call("import", tmp_path / "us.csv", "--people", f"sqlite:///{tmp_path}/people.db", "-o", "table")
    assert "1 values of phone could not be read, so they match no one (use --country" in done.stdout


@pytest.mark.finding("N66")
@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["31.1.1980", "1.2.1980"], ("dmy", False)),
        (["1/31/1980", "1/2/1980"], ("mdy", False)),
        (["1/2/1980"], (None, True)),
        (["31/1/1980", "1/31/1980"], (None, True)),
        (["1980-01-31", "", "x"], (None, False)),
    ],
)
def test_the_order_of_dates_is_detected(values: list[str], found: tuple[str | None, bool]) -> None:
    assert detect_order(values) == found


def test_dates_are_read_in_the_declared_order(file: Path, people: People) -> None:
    assert [iso_date(text, "mdy") for text in ("3/4/1980", "3/4/80", "3/4/05", "31/1/1980", "x")] == [
        *("1980-03-04", "1980-03-04", "2005-03-04", "31/1/1980", "x")
    ]
    assert iso_date("80-03-04", "ymd") == "1980-03-04"
    with pytest.raises(ConfigurationError, match="not an order"):
        import_file(write(file, users(1)), people, dates="ydm")
    with pytest.raises(ConfigurationError, match="country='Atlantis' is unknown"):
        import_file(file, people, country="Atlantis")


@pytest.mark.finding("N66")
def test_a_dated_export_is_recognised_as_the_next_edition(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/people.db"
    for month in ("01", "02"):
        (tmp_path / f"export-2026-{month}.csv").write_text(f"Email,Month\nanna@example.com,{month}\n")
    first, second = (
        call("import", tmp_path / f"export-2026-{month}.csv", "--people", url, "-o", "table") for month in ("01", "02")
    )
    assert "edition" not in first.stdout
    assert (
        "this looks like the next edition of export-2026-01.csv: use --name export for every edition" in second.stdout
    )
    assert earlier_edition("csv/users.csv", ["csv/staff.csv", "csv/users2.csv"]) is None
    assert suggested_name("csv/hr_20260201_full.csv") == "hr-full"
