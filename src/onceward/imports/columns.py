"""Map columns to fields of a person, and choose the columns that identify a row. Checked before the import starts."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct

from onceward.errors import SourceError
from onceward.protocol.suggest import did_you_mean

from .known_rows import fingerprint, key_of
from .rows import SourceRow

KEY_FIELDS: Final = ("external_id", "email")
"""What identifies a row if no columns are given: the first of these fields that the row has."""

SIMILARITY_CUTOFF: Final = 0.8
"""From 0 to 1. `emial` and `email` are just similar enough."""

FIELD_ALIASES: Final[Mapping[str, str]] = {
    "mail": "email",
    "emailaddress": "email",
    "fullname": "name",
    "firstname": "given_name",
    "forename": "given_name",
    "lastname": "surname",
    "familyname": "surname",
    "birthdate": "date_of_birth",
    "birthday": "date_of_birth",
    "dob": "date_of_birth",
    "phonenumber": "phone",
    "telephone": "phone",
    "zip": "postcode",
    "zipcode": "postcode",
    "postalcode": "postcode",
}
"""Other names of known fields, normalised. They are only suggested, never applied: a name may mean something else."""

MAX_CACHED_COLUMNS: Final = 10_000
"""A bound for the cache of column names, in files where every row has its own columns."""


class ColumnChoices(Struct, frozen=True):
    """The user's choices: `fields` maps columns to fields, `id` lists the columns that identify a row."""

    fields: Mapping[str, str]
    ignore: tuple[str, ...] = ()
    id: tuple[str, ...] = ()

    def digest(self, *others: str | int | None) -> str:
        """Return a digest of the choices: the same file with other choices is another import."""
        choices = [sorted(self.fields.items()), sorted(self.ignore), self.id, others]
        return blake2b(msgspec.json.encode(choices), digest_size=12).hexdigest()


class ColumnMapping:
    """The choices, applied to the columns of a file.

    A column that is not mapped becomes the known field of that name, or keeps its own name.
    """

    def __init__(self, chosen: ColumnChoices, columns: Sequence[str], known: Collection[str]) -> None:
        for column in (*chosen.fields, *chosen.ignore, *chosen.id):
            if columns and column not in columns:
                raise SourceError(f"there is no column {column!r}", hint=did_you_mean(column, columns, "columns are"))
        self._chosen = chosen
        mapped = set(chosen.fields.values())
        _refuse_typos(chosen, known, [name for name in known if name not in mapped])
        self._known_by_normalized = {_normalized(name): name for name in known if name not in mapped}
        self._fields: dict[str, str] = {}
        imported = [column for column in columns if column not in chosen.ignore]
        self._fixed = {column: self._field(column) for column in imported}  # empty if every row has its own columns
        used = set(self._fixed.values())
        self.overlooked = {
            column: meant
            for column, field in self._fixed.items()
            if column not in chosen.fields and (meant := FIELD_ALIASES.get(_normalized(field), "")) in known
            if meant not in used
        }
        """Columns that keep their names, and the fields that they probably mean."""
        duplicate = self._duplicate(columns)
        if duplicate is not None:
            raise SourceError(duplicate, hint="map or ignore one of them")
        if columns and not any(field in known for field in self._fixed.values()):
            raise SourceError(
                "no column identifies people",
                hint=f"map one of them ({', '.join(columns)}) to one of {', '.join(known)}, as in Email=email",
            )

    def fields(self, row: SourceRow) -> dict[str, str]:
        """Return the values of the row by field. Raise `ValueError` if two of its columns are the same field."""
        if fixed := self._fixed:
            return {fixed[column]: value for column, value in row.values.items() if column in fixed}
        ignored = self._chosen.ignore
        found = {self._field(column): value for column, value in row.values.items() if column not in ignored}
        if len(found) < len(row.values) and (duplicate := self._duplicate(tuple(row.values))):
            raise ValueError(duplicate)
        return found

    def key(self, row: SourceRow, fields: Mapping[str, str]) -> str:
        """Return what identifies the row: the chosen columns, a key field, or else its content."""
        if self._chosen.id:
            parts = tuple(row.values.get(column, "") for column in self._chosen.id)
            if any(part.strip() for part in parts):
                return key_of(parts)
        for field in KEY_FIELDS:
            value = fields.get(field, "")
            if value.strip():
                return key_of((value.lower() if field == "email" else value,))
        return f"={fingerprint(fields)}"

    def _field(self, column: str) -> str:
        found = self._fields.get(column)
        if found is None:
            found = self._chosen.fields.get(column) or self._known_by_normalized.get(_normalized(column), column)
            if len(self._fields) < MAX_CACHED_COLUMNS:
                self._fields[column] = found
        return found

    def _duplicate(self, columns: Sequence[str]) -> str | None:
        before: dict[str, str] = {}
        for column in columns:
            if column not in self._chosen.ignore:
                field = self._field(column)
                if field in before:
                    return f"the columns {before[field]!r} and {column!r} are both {field}"
                before[field] = column
        return None


def _refuse_typos(chosen: ColumnChoices, known: Collection[str], free: Sequence[str]) -> None:
    """Raise if a mapped field is nearly a known field: as a custom field, it would not identify anyone, silently."""
    from difflib import get_close_matches  # imported here: most imports do not need it

    for column, field in chosen.fields.items():
        meant = [name for name in (FIELD_ALIASES.get(_normalized(field)),) if name in free]
        near = [] if field in known else meant or get_close_matches(field, free, n=1, cutoff=SIMILARITY_CUTOFF)
        if near:
            raise SourceError(
                f"{column!r} is mapped to {field!r}, which is {'' if meant else 'nearly '}{near[0]!r}",
                hint=f"write {near[0]}; a custom field may be named like its column, without a mapping",
            )


def _normalized(name: str) -> str:
    """Remove case, spaces and punctuation: `E-Mail` becomes `email`, `Given Name` becomes `givenname`."""
    return re.sub(r"[^0-9a-z]", "", name.lower())
