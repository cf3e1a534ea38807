"""Export people: golden records, the crosswalk from source records to people, and the evidence of every decision."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

from msgspec.structs import asdict, fields

from onceward.errors import ConfigurationError
from onceward.protocol.extras import import_extra

from .people import People
from .person import Person
from .source import Evidence

What = Literal["golden", "crosswalk", "evidence"]
Format = Literal["csv", "ndjson", "parquet"]
KINDS: Final[tuple[str, ...]] = get_args(What)
FORMATS: Final[tuple[str, ...]] = get_args(Format)

Row = Mapping[str, Any]


def export(people: People, path: Path, what: str = "golden", format: str | None = None) -> int:  # noqa: A002 (as on the command line)
    """Write the file and return the number of rows. The format is that of the file's extension by default."""
    kind = format or path.suffix.lower().lstrip(".").replace("jsonl", "ndjson")
    if what not in KINDS or kind not in FORMATS:
        known, wanted = (FORMATS, "a file name that ends in") if what in KINDS else (KINDS, "one of")
        endings = [f".{one}" if known is FORMATS else one for one in known]
        raise ConfigurationError(f"cannot export {what!r} as {kind!r}", hint=f"choose {wanted} {', '.join(endings)}")
    make = _ROWS[what]
    columns = _COLUMNS[what] if what in _COLUMNS else _golden_columns(people)
    rows = (row for person in people for row in make(person))
    if kind == "ndjson":
        return _write_ndjson(path, rows)
    if kind == "csv":
        return _write_csv(path, columns, rows)
    return _write_parquet(path, columns, rows)


def _golden(person: Person) -> Iterator[Row]:
    yield {
        "person": person.id,
        **{f"field.{name}" if name in _OWN else name: value for name, value in sorted(person.fields.items())},
        "sources": list(person.sources),
        "records": len(person.contributions),
        "first_seen": person.first_seen.isoformat(),
        "last_seen": person.last_seen.isoformat(),
    }


_OWN: Final = ("person", "sources", "records", "first_seen", "last_seen")


def _golden_columns(people: People) -> list[str]:
    names = {name for person in people for row in _golden(person) for name in row}
    return ["person", *sorted(names.difference(_OWN)), *_OWN[1:]]


def _crosswalk(person: Person) -> Iterator[Row]:
    for part in person.contributions:
        yield {"person": person.id, "source": part.source, "record": part.record, "at": part.at.isoformat()}


def _evidence(person: Person) -> Iterator[Row]:
    for part in person.contributions:
        base = {"person": person.id, **{name: getattr(part, name) for name in _ASSIGNMENT}}
        if not part.evidence:
            yield base
        for one in part.evidence:
            yield base | asdict(one)


_ASSIGNMENT: Final = ("source", "record", "rule", "confidence")
_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "crosswalk": ("person", "source", "record", "at"),
    "evidence": ("person", *_ASSIGNMENT, *(field.name for field in fields(Evidence))),
}
_ROWS: Final[Mapping[str, Callable[[Person], Iterator[Row]]]] = {
    "golden": _golden,
    "crosswalk": _crosswalk,
    "evidence": _evidence,
}


def _write_ndjson(path: Path, rows: Iterator[Row]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def _write_csv(path: Path, columns: Sequence[str], rows: Iterator[Row]) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _text(value) for name, value in row.items()})
            count += 1
    return count


def _write_parquet(path: Path, columns: Sequence[str], rows: Iterator[Row]) -> int:
    """Write all values as text, through a temporary CSV file that DuckDB converts."""
    duckdb = import_extra("duckdb", "Parquet files need the module 'duckdb'", "install onceward[warehouse]")
    temporary = path.with_name(f"{path.name}.csv")
    try:
        count = _write_csv(temporary, columns, rows)
        connection = duckdb.connect()
        source = "read_csv(?, all_varchar = true, header = true, quote = '\"', delim = ',')"
        connection.execute(f"COPY (SELECT * FROM {source}) TO '{_quoted(path)}' (FORMAT parquet)", [str(temporary)])  # noqa: S608 (quoted)
        connection.close()
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
