"""For any file: rows of a CSV writer are read back unchanged, and random bytes are reported, not raised."""

from __future__ import annotations

import csv
import io
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.errors import SourceError
from onceward.imports.open_rows import open_rows
from onceward.imports.reject_file import escape_formula, unescape_formulas
from onceward.imports.rows import AnyRow, SourceRow
from onceward.imports.scan import scan

cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
tables = st.lists(st.tuples(cells, cells, st.sampled_from(["x", "y,z", "a;b"])), max_size=8)


def reads(content: bytes, **choices: str) -> list[AnyRow]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file.csv"
        file.write_bytes(content)
        reader = open_rows(file, scan(file, choices.get("encoding")), "csv", delimiter=choices.get("delimiter"))
        try:
            return list(reader)
        finally:
            reader.close()


@given(tables, st.sampled_from([",", ";", "\t", "|"]), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_what_a_writer_wrote_is_read_as_it_was(
    table: list[tuple[str, str, str]], delimiter: str, encoding: str
) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([("a", "b", "c"), *table])
    found = reads(text.getvalue().encode(encoding), delimiter=delimiter, encoding=encoding)
    expected = [{name: cell for name, cell in zip("abc", row, strict=True) if cell} for row in table]
    assert [dict(read.values) if isinstance(read, SourceRow) else read for read in found] == expected


@given(st.binary(max_size=300), st.sampled_from([b"", b"a,b\n", b'a;b\r\n"']))
def test_random_bytes_are_rows_or_rejects_or_a_message(noise: bytes, begin: bytes) -> None:
    try:
        found = reads(begin + noise)
    except SourceError:
        return  # for example: it is empty, it has no header
    lines = [read.line for read in found]
    assert lines == sorted(lines)


@pytest.mark.finding("N40")
@given(st.lists(st.text(st.sampled_from("=+-@;|\t\r\n'\" ,a\uff1d"), max_size=8) | st.text(max_size=6)))
def test_no_part_of_a_cell_is_a_formula_whichever_separator_a_spreadsheet_uses(row: list[str]) -> None:
    guard = [escape_formula(cell) for cell in row]
    for cell in guard:
        for part in re.split("[;|\t\r\n]", cell):
            assert not part.lstrip(' "').startswith(("=", "+", "-", "@", "\uff1d")), cell
    assert unescape_formulas(guard) == row


@given(st.lists(st.text(max_size=6)))
def test_the_guard_against_formulas_comes_off_as_it_went_on(row: list[str]) -> None:
    guard = [escape_formula(cell) for cell in row]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in guard)
    assert unescape_formulas(guard) == row
