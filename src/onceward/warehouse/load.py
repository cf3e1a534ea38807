"""The checks of a load, and the errors and results that are the same in every warehouse. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from msgspec.structs import replace

from onceward.errors import ConfigurationError, InvalidKey, MissingKey, PayloadMismatch, SourceError

from .batch import RowBatch, Tuple, keys_of
from .port import Fingerprinting, Loaded
from .table import ColumnType, Table

ROUNDING_TYPES: Final[dict[ColumnType, frozenset[str]]] = {
    "integer": frozenset({"real", "float", "double", "double precision"}),
    "number": frozenset({"real", "float", "tinyint", "smallint", "integer", "bigint", "hugeint"}),
    "time": frozenset({"date", "timestamp", "timestamp without time zone"}),
}
"""Column types that accept such values but silently change them. Decimals are allowed: the table's owner chose them."""

LOADS: Final = "onceward_loads"
MAX_ID_LENGTH: Final = 500
SURROGATE: Final = re.compile("[\ud800-\udfff]")


def replay_result(load_id: str, batch: RowBatch, table: str, digest: str, counts: tuple[int, int, int, int]) -> Loaded:
    """Return the result of an earlier load with this id. Raise PayloadMismatch if its table or rows were different."""
    comparable = digest and batch.digest
    if table != batch.table.name or (comparable and digest != batch.digest):
        difference = "with other rows" if table == batch.table.name else f"into {table}"
        raise PayloadMismatch(
            f"this load id was already used {difference}", key=load_id, hint="use a new load id for other rows"
        )
    given, rows, inserted, updated = counts
    return Loaded(load_id, given, given - rows, inserted, updated, rows - inserted - updated, replayed=True)


def check_load(load_id: str, batch: RowBatch, fingerprint: Fingerprinting) -> RowBatch:
    """Check the load id, and return the batch as it will be recorded."""
    if not isinstance(load_id, str) or not load_id:
        raise MissingKey("a load needs an id", hint="use for example the name of the batch, the same on every attempt")
    if len(load_id) > MAX_ID_LENGTH or "\0" in load_id or SURROGATE.search(load_id):
        raise InvalidKey(f"a load id has at most {MAX_ID_LENGTH} characters, without NUL and lone surrogates")
    if fingerprint not in get_args(Fingerprinting):
        raise ConfigurationError(f"fingerprint={fingerprint!r} is not supported", hint='write "rows" or "none"')
    return batch if fingerprint == "rows" else replace(batch, digest="")


def key_batch(table: Table, keys: Sequence[Any]) -> tuple[list[Tuple], RowBatch]:
    """Return the keys as rows, and a batch of them for the staging table."""
    rows = keys_of(table, keys)
    key_table = Table(name=table.name, columns={name: table.columns[name] for name in table.key}, key=table.key)
    return rows, RowBatch(key_table, list(dict.fromkeys(rows)), len(rows), "")


def results_by_key(
    table: Table, keys: Sequence[Any], rows: Sequence[Tuple], answers: Sequence[Tuple]
) -> dict[Any, tuple[Any, ...]]:
    """Return the other columns of the answers, which begin with the key, by the caller's keys."""
    size = len(table.key)
    found = {answer[:size]: answer[size:] for answer in answers}
    return {key: found[row] for key, row in zip(keys, rows, strict=True) if row in found}


def check_selectable(table: Table, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns if every engine returns them as they were loaded, which excludes json and time."""
    for column in columns:
        if table.columns.get(column, "json") in ("json", "time"):
            raise ConfigurationError(f"{column!r} cannot be looked up in {table.name}", hint="select it with query(…)")
    return tuple(columns)


def check_columns(table: Table, found: Mapping[str, str]) -> None:
    """Raise if an existing table lacks a column or would round values. Additional columns are allowed."""
    missing = [name for name in table.columns if name not in found]
    rounded = [
        name for name, kind in table.columns.items() if found.get(name, "").lower() in ROUNDING_TYPES.get(kind, ())
    ]
    if rounded:
        raise ConfigurationError(
            f"the existing table {table.name} would round: "
            + ", ".join(f"{name} ({table.columns[name]} into {found[name].lower()})" for name in rounded),
            hint="change the columns, or load into another table",
        )
    if missing:
        raise ConfigurationError(
            f"the existing table {table.name} lacks the columns: {', '.join(missing)}",
            hint="add the columns, or load into another table",
        )


def missing_unique_key(table: Table, more_hint: str = "") -> ConfigurationError:
    return ConfigurationError(
        f"the existing table {table.name} has no unique index over {', '.join(table.key)}",
        hint=f"add a primary key or a unique index over exactly these columns{more_hint}",
    )


def row_refused(table: Table, load_id: str | None, error: Exception) -> SourceError:
    """Return the error for a row that violates a constraint of the table."""
    return SourceError(
        f"{table.name} rejects a row of this load, so nothing was loaded: {error}",
        key=load_id,
        hint="fix the rows and load them again" + (" under the same load id" if load_id else ""),
    )
