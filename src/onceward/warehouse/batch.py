"""Check the rows of one load against their columns, remove duplicates, and compute a fingerprint. No I/O."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from onceward.errors import InvalidKey, SourceError
from onceward.protocol.instants import instant

from .table import ColumnType, Table

INTEGER_LIMIT: Final = 1 << 63

Cell = str | int | float | bool | None
Tuple = tuple[Cell, ...]
"""One row: one plain value per column. A time is an integer (microseconds since 1970); json is its text."""


class RowBatch(Struct, frozen=True):
    """The rows for the staging table."""

    table: Table
    rows: list[Tuple]
    given: int
    """The number of input rows, including duplicates."""

    digest: str
    """The hash of all input rows: the same load id with another digest is a mismatch. Empty: not compared."""


def batch_of(table: Table, rows: Iterable[Mapping[str, Any]]) -> RowBatch:
    """Check the rows and sort them by key, so that concurrent loads never deadlock."""
    names = tuple(table.columns)
    newest = None if table.newest_by is None else names.index(table.newest_by)
    hasher = hashlib.sha256(msgspec.json.encode([table.name, dict(table.columns), table.key]))
    kept: dict[Tuple, Tuple] = {}
    given = 0
    for given, (key, values) in enumerate(checked_rows(table, rows), 1):  # noqa: B007 (the last number is the count)
        hasher.update(msgspec.json.encode(values))
        if table.on_match == "keep":
            kept.setdefault(key, values)
        elif newest is None or key not in kept or _order(values[newest]) >= _order(kept[key][newest]):
            kept[key] = values
    return RowBatch(table, [kept[key] for key in sorted(kept, key=repr)], given, hasher.hexdigest())


def checked_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Tuple, Tuple]]:
    """Yield (key, row) for each row, checked, in input order."""
    names = tuple(table.columns)
    checks = [(name, _CHECKS[kind]) for name, kind in table.columns.items()]
    keys = [names.index(column) for column in table.key]
    for number, row in enumerate(rows, 1):
        values = _checked(row, checks, table, number)
        key = tuple(values[index] for index in keys)
        if None in key:
            raise SourceError(f"row {number} has no {table.key[key.index(None)]}, which is the key of {table.name}")
        yield key, values


def keys_of(table: Table, keys: Iterable[Any]) -> list[Tuple]:
    """Return the keys as rows of the key columns, checked like rows, in input order."""
    checks = [(name, _CHECKS[table.columns[name]]) for name in table.key]
    rows = []
    for number, key in enumerate(keys, 1):
        parts = key if isinstance(key, tuple) else (key,)
        if len(parts) != len(table.key):
            raise InvalidKey(
                f"a key of {table.name} is {', '.join(table.key)}", hint="pass a tuple for several columns"
            )
        rows.append(_checked(dict(zip(table.key, parts, strict=True)), checks, table, number))
    return rows


def _checked(row: Mapping[str, Any], checks: list[tuple[str, Check]], table: Table, number: int) -> Tuple:
    unknown = row.keys() - table.columns.keys()
    if unknown:
        raise SourceError(f"row {number} has {', '.join(sorted(map(str, unknown)))}, which {table.name} does not have")
    values = []
    for name, check in checks:
        value = row.get(name)
        try:
            values.append(None if value is None else check(value))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            kind = table.columns[name]
            raise SourceError(
                f"row {number}: {name} is not a valid {kind}: {error}", hint=f"the column has the type {kind}"
            ) from error
    return tuple(values)


def json_lists(rows: Iterable[bytes], size: int) -> Iterator[str]:
    """Yield encoded rows as JSON lists of about `size` bytes. Without rows, yield an empty list."""
    pending: list[bytes] = []
    total = 0
    for row in rows:
        if pending and total + len(row) > size:
            yield f"[{b','.join(pending).decode()}]"
            pending, total = [], 0
        pending.append(row)
        total += len(row) + 1
    yield f"[{b','.join(pending).decode()}]"


def _order(value: Cell) -> tuple[bool, Any]:
    """Return a sort key: a missing value sorts lowest."""
    return (value is not None, value)


# ── one check per type ──

Check = Callable[[Any], Cell]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is not text")
    if "\0" in value:
        raise ValueError("it contains a NUL character")
    value.encode("utf-8")  # raises for a lone surrogate
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{type(value).__name__} is not an integer")
    if not -INTEGER_LIMIT <= value < INTEGER_LIMIT:
        raise OverflowError("it needs more than 64 bits")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{type(value).__name__} is not a number")
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return float(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} is not a boolean")
    return value


def _time(value: Any) -> int:
    """Return microseconds since 1970. Engines format time zones differently; a number is unambiguous."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        raise TypeError(f"{type(value).__name__} is not a time")
    if moment.tzinfo is None:
        raise ValueError("it has no time zone")
    return instant(moment)


def _json(value: Any) -> str:
    text = msgspec.json.encode(value, order="deterministic").decode()
    if "\\u0000" in text:
        raise ValueError("it contains a NUL character")
    return text


_CHECKS: Final[dict[ColumnType, Check]] = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "time": _time,
    "json": _json,
}
