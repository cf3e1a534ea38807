"""One load, whatever the engine: claim the load id, fill the staging table, merge, record; all in one transaction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, get_args

from msgspec.structs import replace

from onceward.errors import ConfigurationError, InvalidKey, MissingKey, PayloadMismatch, SourceError

from .batch import RowBatch, Tuple, keys_of
from .port import Fingerprinting, Loaded
from .table import ColumnType, Table

ROUNDS: Final[dict[ColumnType, frozenset[str]]] = {
    "integer": frozenset({"real", "float", "double", "double precision"}),
    "number": frozenset({"real", "float", "tinyint", "smallint", "integer", "bigint", "hugeint"}),
    "time": frozenset({"date", "timestamp", "timestamp without time zone"}),
}
"""Types of columns that take such values and silently make others of them. A decimal is its owner's choice."""

LOADS: Final = "onceward_loads"
LONGEST_ID: Final = 500
SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Merging(Protocol):
    """A transaction that is open on the warehouse."""

    def claimed(self, load_id: str, batch: RowBatch) -> tuple[str, str, tuple[int, int, int, int]] | None:
        """Record the load as ours: None. If it is recorded already: its table, its digest and what it did."""
        ...

    def stage(self, batch: RowBatch) -> None:
        """Fill a staging table of this transaction's own."""
        ...

    def merge(self, table: Table) -> tuple[int, int]:
        """From the staging table into the table: how many rows were inserted, how many updated."""
        ...

    def record(self, load_id: str, inserted: int, updated: int) -> None: ...


def load_in(merging: Merging, load_id: str, batch: RowBatch) -> Loaded:
    """Nothing is committed here."""
    before = merging.claimed(load_id, batch)
    if before is not None:
        return replayed(load_id, batch, *before)
    merging.stage(batch)
    inserted, updated = merging.merge(batch.table)
    merging.record(load_id, inserted, updated)
    rows = len(batch.rows)
    return Loaded(load_id, batch.given, batch.given - rows, inserted, updated, rows - inserted - updated)


def replayed(load_id: str, batch: RowBatch, table: str, digest: str, did: tuple[int, int, int, int]) -> Loaded:
    """What the record of this load says, if it is of this very load."""
    comparable = digest and batch.digest
    if table != batch.table.name or (comparable and digest != batch.digest):
        what = "with other rows" if table == batch.table.name else f"into {table}"
        raise PayloadMismatch(
            f"this load was done before {what}", key=load_id, hint="give other rows a load id of their own"
        )
    given, rows, inserted, updated = did
    return Loaded(load_id, given, given - rows, inserted, updated, rows - inserted - updated, replayed=True)


def checked(load_id: str, batch: RowBatch, fingerprint: Fingerprinting) -> RowBatch:
    """The batch as it is to be recorded under this id."""
    if not isinstance(load_id, str) or not load_id:
        raise MissingKey("a load needs an id", hint="such as the name of its batch, the same on every attempt")
    if len(load_id) > LONGEST_ID or "\0" in load_id or SURROGATE.search(load_id):
        raise InvalidKey(f"a load id has at most {LONGEST_ID} characters, no NUL and no half of one among them")
    if fingerprint not in get_args(Fingerprinting):
        raise ConfigurationError(f"fingerprint={fingerprint!r} is not possible", hint='write "rows" or "none"')
    return batch if fingerprint == "rows" else replace(batch, digest="")


def wanted_keys(table: Table, keys: Sequence[Any]) -> tuple[list[Tuple], RowBatch]:
    """The keys as they stand in the table, and a batch of them for the staging table."""
    rows = keys_of(table, keys)
    only = Table(name=table.name, columns={name: table.columns[name] for name in table.key}, key=table.key)
    return rows, RowBatch(only, list(dict.fromkeys(rows)), len(rows), "")


def by_key(
    table: Table, keys: Sequence[Any], rows: Sequence[Tuple], answers: Sequence[Tuple]
) -> dict[Any, tuple[Any, ...]]:
    """From rows that begin with their key to what the caller calls it."""
    size = len(table.key)
    told = {answer[:size]: answer[size:] for answer in answers}
    return {key: told[row] for key, row in zip(keys, rows, strict=True) if row in told}


def plain_columns(table: Table, columns: Sequence[str]) -> tuple[str, ...]:
    """Those that every engine hands out as they were put in."""
    for column in columns:
        if table.columns.get(column, "json") in ("json", "time"):
            raise ConfigurationError(f"{column!r} cannot be looked up in {table.name}", hint="ask for it by query(…)")
    return tuple(columns)


def refuse_other_columns(table: Table, found: Mapping[str, str]) -> None:
    """An existing table, its columns with their types, must have what the rows have; more is its owner's business."""
    missing = [name for name in table.columns if name not in found]
    rounded = [name for name, kind in table.columns.items() if found.get(name, "").lower() in ROUNDS.get(kind, ())]
    if rounded:
        raise ConfigurationError(
            f"the table {table.name} is there, and would round: "
            + ", ".join(f"{name} ({table.columns[name]} into {found[name].lower()})" for name in rounded),
            hint="change the columns, or load into another table",
        )
    if missing:
        raise ConfigurationError(
            f"the table {table.name} is there, without: {', '.join(missing)}",
            hint="add the columns, or load into another table",
        )


def no_key(table: Table, otherwise: str = "") -> ConfigurationError:
    return ConfigurationError(
        f"the table {table.name} is there, but its rows are not unique by {', '.join(table.key)}",
        hint=f"add a primary key or a unique index over exactly these columns{otherwise}",
    )


def refused(table: Table, load_id: str | None, error: Exception) -> SourceError:
    """By a constraint that the table's owner has set."""
    return SourceError(
        f"{table.name} refuses a row of this load, so nothing of it was loaded: {error}",
        key=load_id,
        hint="mend the rows and load them again" + (": the load id is not used up" if load_id else ""),
    )
