"""Read any file: every row is either read or rejected with its line and the reason."""

from __future__ import annotations

import csv
import os
import tracemalloc
from pathlib import Path

import pytest

from onceward.errors import SourceError
from onceward.imports.open_rows import format_of, open_rows
from onceward.imports.rows import AnyRow, BadRow, SourceRow
from onceward.imports.scan import scan


def reads(path: Path, **choices: object) -> list[AnyRow]:
    encoding = choices.pop("encoding", None)
    assert encoding is None or isinstance(encoding, str)
    reader = open_rows(path, scan(path, encoding), format_of(path), **choices)  # type: ignore[arg-type]  # each test knows its own
    try:
        found = list(reader)
        assert reader.digest() == scan(path).sha256, "the rows read differ from the file"
        return found
    finally:
        reader.close()


def rows(path: Path, **choices: object) -> list[dict[str, str]]:
    found = reads(path, **choices)
    bad = [read for read in found if isinstance(read, BadRow)]
    assert bad == []
    return [dict(read.values) for read in found if isinstance(read, SourceRow)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users.csv"


ANNA = {"Email": "anna@example.com", "City": "Zürich"}


@pytest.mark.parametrize(
    ("encoding", "mark"),
    [
        ("utf-8", b""),
        ("utf-8", b"\xef\xbb\xbf"),
        ("utf-16-le", b"\xff\xfe"),
        ("utf-16-be", b"\xfe\xff"),
        ("utf-16-le", b""),
        ("utf-16-be", b""),
        ("utf-32-le", b"\xff\xfe\x00\x00"),
        ("cp1252", b""),
    ],
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encoding_delimiter_and_line_ends_are_found(
    file: Path, encoding: str, mark: bytes, delimiter: str, end: str
) -> None:
    lines = ["Email,City", "anna@example.com,Zürich", "bo@example.com,Malmö"]
    text = end.join(line.replace(",", delimiter) for line in lines) + end
    file.write_bytes(mark + text.encode(encoding))
    assert rows(file) == [ANNA, {"Email": "bo@example.com", "City": "Malmö"}]


def test_a_guessed_encoding_is_reported_as_a_guess(file: Path) -> None:
    file.write_bytes("Email,City\nanna@example.com,Zürich\n".encode("cp1252"))
    assert (scan(file).encoding, scan(file).guessed) == ("cp1252", True)
    assert not scan(file, "cp1252").guessed


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters_inside_of_quotes_do_not_count(file: Path, delimiter: str) -> None:
    line = delimiter.join(["anna@example.com", '"a;b,c\td;;,,"'])
    file.write_text(f"Email{delimiter}Note\n{line}\n{line}\n", newline="")
    assert rows(file)[0]["Note"] == "a;b,c\td;;,,"


def test_a_file_that_names_its_delimiter_is_believed(file: Path) -> None:
    file.write_text("sep=;\nEmail;Tags\nanna@example.com;a,b,c\n")
    assert rows(file) == [{"Email": "anna@example.com", "Tags": "a,b,c"}]
    assert reads(file)[0].line == 3


def test_one_column_needs_no_delimiter(file: Path) -> None:
    file.write_text("Email\nanna@example.com\n")
    assert rows(file) == [{"Email": "anna@example.com"}]


def test_a_few_bytes_of_another_encoding_reject_their_rows_only(file: Path) -> None:
    good = "Email,City\nanna@example.com,Zürich\nbo@example.com,Malmö\n".encode()
    file.write_bytes(good + "carl@example.com,Orléans\n".encode("cp1252") + b"dora@example.com,Bonn\n")
    found = reads(file)
    assert [read.line for read in found if isinstance(read, SourceRow)] == [2, 3, 5]
    (bad,) = [read for read in found if isinstance(read, BadRow)]
    assert (bad.line, "not utf-8: byte e9" in bad.reason) == (4, True)
    assert bad.cells[1].encode("utf-8", "surrogateescape") == "Orléans".encode("cp1252"), "nothing of it is lost"


def test_a_wrong_encoding_that_was_given_rejects_the_rows_it_cannot_decode(file: Path) -> None:
    file.write_bytes("Email,City\nanna@example.com,Zürich\nbo@example.com,Bonn\n".encode("cp1252"))
    found = reads(file, encoding="utf-8")
    assert [type(read) for read in found] == [BadRow, SourceRow]


def test_an_unknown_encoding_is_refused(file: Path) -> None:
    file.write_text("Email\n")
    with pytest.raises(SourceError, match="no text encoding 'klingon'"):
        scan(file, "klingon")


def test_ragged_rows_are_rejected_and_the_others_read(file: Path) -> None:
    file.write_text("a,b,c\n1,2,3\n1,2\n1,2,3,4\n1,2,3,,\n\n4,5,6\n")
    found = reads(file)
    assert [(read.line, read.reason) for read in found if isinstance(read, BadRow)] == [
        (3, "has 2 cells where the header has 3"),
        (4, "has 4 cells where the header has 3"),
    ]
    assert [read.line for read in found if isinstance(read, SourceRow)] == [2, 5, 7]


def test_a_row_over_several_lines_has_the_line_where_it_begins(file: Path) -> None:
    file.write_text('a,b\n1,"x\ny\nz"\n2,w\n3\n')
    found = reads(file)
    assert [read.line for read in found] == [2, 5, 6]
    assert isinstance(found[0], SourceRow)
    assert found[0].values["b"] == "x\ny\nz"


def test_a_nul_is_rejected(file: Path) -> None:
    file.write_bytes(b"a,b\n1,2\n1,\x00\n3,4\n")
    found = reads(file)
    assert [(read.line, type(read)) for read in found] == [(2, SourceRow), (3, BadRow), (4, SourceRow)]


def test_a_field_of_ten_megabytes_is_rejected_and_not_kept_in_memory(file: Path) -> None:
    with file.open("w") as out:
        out.write("a,b\n1,2\n3,")
        for _ in range(10):
            out.write("x" * 1_000_000)
        out.write("\n5,6\n")
    tracemalloc.start()
    found = reads(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(read.line, type(read)) for read in found] == [(2, SourceRow), (3, BadRow), (4, SourceRow)]
    assert isinstance(found[1], BadRow)
    assert "10,000,003 characters; 131,072 are allowed" in found[1].reason
    assert peak < 8_000_000


def test_a_field_of_ten_megabytes_is_read_if_that_is_allowed(file: Path) -> None:
    before = csv.field_size_limit()
    try:
        with file.open("w") as out:
            out.write("a,b\n1," + "x" * 10_000_000 + "\n")
        assert len(rows(file, largest_row=11_000_000)[0]["b"]) == 10_000_000
    finally:
        csv.field_size_limit(before)


def test_the_content_of_a_quoted_cell_is_never_read_as_rows(file: Path) -> None:
    """However long the cell is: otherwise, the author of a cell could insert rows."""
    smuggled = "eve@example.com,Admin\n" * 10_000
    file.write_text(f'Email,Note\nanna@example.com,"{smuggled}"\nbo@example.com,x\n')
    found = reads(file)
    assert [(read.line, type(read)) for read in found] == [(2, BadRow), (10_003, SourceRow)]
    assert "up to line 10002" in getattr(found[0], "reason", "")


def test_a_quote_that_is_never_closed_is_rejected_with_what_was_not_read(file: Path) -> None:
    file.write_text('a,b\n1,2\n3,"open\n5,6\n7,8\n')
    found = reads(file)
    assert [(read.line, type(read)) for read in found] == [(2, SourceRow), (3, BadRow)]
    assert "never closed, so the 2 lines after it were not read" in getattr(found[1], "reason", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "users.csv is empty"),
        (b"\n\n\n", "users.csv has no header"),
        (b",,\n", "users.csv has no header"),
        (b"Email,,City\n", "columns without a name: 2"),
        (b"Email,City,Email\n", r"columns that are repeated: 'Email' \(1 and 3\)"),
        (b'"Email\n', "header of users.csv cannot be read: a quote is opened"),
        (b"Email\x00,City\n", "header of users.csv cannot be read: holds a NUL"),
    ],
)
def test_a_file_that_cannot_be_imported_says_why(file: Path, content: bytes, message: str) -> None:
    file.write_bytes(content)
    with pytest.raises(SourceError, match=message):
        reads(file)


def test_a_header_alone_is_a_file_without_rows(file: Path) -> None:
    file.write_text("Email,City\n")
    assert rows(file) == []


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        scan(tmp_path / "none.csv")
    with pytest.raises(SourceError, match="is a folder"):
        scan(tmp_path)
    with pytest.raises(SourceError, match=r"format of users.xlsx is unknown"):
        format_of(tmp_path / "users.xlsx")


def test_a_source_that_can_be_read_only_once_is_refused_without_waiting(tmp_path: Path) -> None:
    pipe = tmp_path / "users.csv"
    os.mkfifo(pipe)
    with pytest.raises(SourceError, match="is not a regular file"):
        reads(pipe)


@pytest.mark.parametrize("name", ["users.csv", "users.ndjson"])
@pytest.mark.parametrize("begin", [b"\x1f\x8b\x08", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"])
def test_a_compressed_file_is_refused(tmp_path: Path, begin: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(begin + b"anything\n" * 9)
    with pytest.raises(SourceError, match="is compressed"):
        reads(tmp_path / name)


def test_ndjson_is_read_as_text_and_bad_lines_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "users.ndjson"
    file.write_bytes(
        b'\xef\xbb\xbf{"email": "anna@example.com", "age": 41, "tags": ["a"], "ok": true, "none": null}\n'
        b"\n[1]\nnot json\n"
        b'{"email": "bo\\u0000@example.com"}\n{"email": "x' + b"x" * 2_000_000 + b'"}\n{"email": "bo@example.com"}'
    )
    found = reads(file)
    assert [(read.line, type(read)) for read in found] == [
        (1, SourceRow),
        (3, BadRow),
        (4, BadRow),
        (5, BadRow),
        (6, BadRow),
        (7, SourceRow),
    ]
    assert isinstance(found[0], SourceRow)
    assert found[0].values == {"email": "anna@example.com", "age": "41", "tags": '["a"]', "ok": "true"}
    assert "2,000,015 bytes" in getattr(found[4], "reason", "")


def test_half_of_a_character_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "users.csv"
    file.write_bytes("a,b\n1,\ud800\n2,😀\n".encode("utf-16", "surrogatepass"))
    found = reads(file)
    assert [(read.line, type(read)) for read in found] == [(2, BadRow), (3, SourceRow)]
    assert "half of a character" in getattr(found[0], "reason", "")


@pytest.mark.fault("F15", "F16", "F17")
def test_json_keeps_its_numbers_and_meaningless_ones_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "users.ndjson"
    lines = [
        '{"a": 1.10, "b": 12345678901234567890123, "c": [1.10, {"d": true}]}',
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": "\\ud800"}',
        '{"a": ' + "9" * 5_000 + "}",
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"a": "\\ud83d\\ude00"}',
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    found = reads(file)
    assert [(read.line, type(read)) for read in found] == [
        (1, SourceRow),
        *((n, BadRow) for n in range(2, 7)),
        (7, SourceRow),
    ]
    assert isinstance(found[0], SourceRow)
    assert found[0].values == {"a": "1.10", "b": "12345678901234567890123", "c": '[1.10,{"d":true}]'}
    assert getattr(found[1], "reason", "") == "cannot be read: it has 'a' twice"


def test_parquet_is_read_in_its_order(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    file = tmp_path / "it's [users].parquet"
    made = duckdb.connect()
    made.execute(
        "CREATE TABLE t AS SELECT range AS n, 'u' || range || '@example.com' AS email, NULL AS x FROM range(5000)"
    )
    made.execute(f"COPY t TO '{str(file).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)")
    found = rows(file)
    assert len(found) == 5000
    assert found[4999] == {"n": "4999", "email": "u4999@example.com"}
    assert [read.line for read in reads(file)][:3] == [1, 2, 3]


def test_parquet_gives_the_same_texts_as_csv_and_nan_is_a_missing_value(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "users.parquet"
    duckdb.execute(
        f"""COPY (SELECT 'anna@example.com' AS email, 'nan'::DOUBLE AS external_id, 1.5::DOUBLE AS share,
        TIMESTAMPTZ '2026-01-01 01:00:00+01' AS seen, [TIMESTAMPTZ '2026-01-01 01:00:00+01'] AS several,
        MAP {{DATE '2026-01-01': 2}} AS days, {{'a': NULL, 'b': [1, 2]}} AS nested, 'Bo'::BLOB AS bytes,
        NULL AS nothing) TO '{path}'"""
    )
    assert rows(path) == [
        {
            "email": "anna@example.com",
            "share": "1.5",
            "seen": "2026-01-01 00:00:00+00",
            "several": '["2026-01-01 00:00:00+00"]',
            "days": '{"2026-01-01":2}',
            "nested": '{"a":null,"b":[1,2]}',
            "bytes": "Bo",
        }
    ]


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    file = tmp_path / "users.parquet"
    file.write_bytes(b"Email,City\n")
    with pytest.raises(SourceError, match="cannot be read as Parquet"):
        reads(file)
