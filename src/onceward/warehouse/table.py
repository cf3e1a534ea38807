"""The target of a load: a table with typed columns and a key, and what to do if a row exists already."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, get_args

from msgspec import Struct

from onceward.errors import ConfigurationError

ColumnType = Literal["text", "integer", "number", "boolean", "time", "json"]
TYPES: Final = get_args(ColumnType)
OnMatch = Literal["keep", "replace"]

RESERVED_PREFIX: Final = "onceward_"
"""The prefix of Onceward's staging and record tables. Rows loaded into one of these would be lost."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


class Table(Struct, frozen=True, kw_only=True):
    """`on_match="keep"`: the first row of a key stays. `"replace"`: a later row replaces it, if it differs.

    With `newest_by`, a row replaces another only if its value in that column is not smaller: a late load does not
    change newer rows. `name` may include a schema: `analytics.statements`.

    `same_by` names the columns that `merge` compares to decide whether a row is the same as the existing row of its
    key. A missing value equals any value.
    """

    name: str
    columns: Mapping[str, ColumnType]
    key: tuple[str, ...]
    on_match: OnMatch = "keep"
    newest_by: str | None = None
    same_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parts = self.name.split(".")
        for name in (*parts, *self.columns):
            if not _NAME.fullmatch(name):
                raise ConfigurationError(
                    f"{name!r} is not a valid name in the table {self.name!r}",
                    hint="use letters, digits and _, at most 63, not starting with a digit",
                )
        if parts[-1].lower().startswith(RESERVED_PREFIX):
            raise ConfigurationError(f"{self.name!r} is reserved for Onceward's own tables", hint="choose another name")
        if len(parts) > 2:  # noqa: PLR2004 (schema and table)
            raise ConfigurationError(f"{self.name!r} is not a table name", hint="write table or schema.table")
        self._check_columns()
        self._check_key()

    def _check_columns(self) -> None:
        for column, kind in self.columns.items():
            if kind not in TYPES:
                raise ConfigurationError(f"{column} has an unknown type: {kind!r}", hint=f"one of: {', '.join(TYPES)}")
        if len({column.lower() for column in self.columns}) < len(self.columns):
            raise ConfigurationError(f"two columns of {self.name} differ only in upper and lower case")

    def _check_key(self) -> None:
        if not self.key:
            raise ConfigurationError(f"{self.name} has no key", hint="name the columns that identify a row")
        for column in (*self.key, *self.same_by, *([self.newest_by] if self.newest_by else [])):
            if column not in self.columns:
                raise ConfigurationError(f"{self.name} has no column {column!r}", hint="declare it in columns")
            if self.columns[column] == "json":
                raise ConfigurationError(f"{column} is json, which cannot be ordered", hint="choose another column")
        if self.newest_by is not None and self.on_match != "replace":
            raise ConfigurationError("newest_by decides which row replaces another", hint='set on_match="replace"')
        if self.same_by and self.on_match == "replace":
            raise ConfigurationError(
                "same_by cannot be combined with on_match='replace': replaced rows may differ",
                hint='omit same_by, or set on_match="keep"',
            )

    @property
    def others(self) -> tuple[str, ...]:
        """The columns that are not in the key."""
        return tuple(column for column in self.columns if column not in self.key)

    @property
    def quoted(self) -> str:
        return ".".join(f'"{part}"' for part in self.name.split("."))


def quoted(names: tuple[str, ...] | list[str], prefix: str = "") -> str:
    return ", ".join(f'{prefix}"{name}"' for name in names)
