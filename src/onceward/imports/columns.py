"""Which column is which field of a person, and which columns name a row: checked against the file before its import."""

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
from .rows import Row

NAMES_A_ROW: Final = ("external_id", "email")
"""Unless columns are given: the first of these fields that a row has."""

NEARLY: Final = 0.8
"""Of 1: `emial` is that near to `email`."""

ALSO_CALLED: Final[Mapping[str, str]] = {
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
"""Other words for known fields, as `_plain` writes them. They are told, never taken: a word may mean another thing."""

MOST_NAMES: Final = 10_000
"""Of columns, in files where every row has its own: a bound for what is remembered of them."""


class Columns(Struct, frozen=True):
    """What was chosen: `fields` leads from columns to fields, `id` names the columns that name a row."""

    fields: Mapping[str, str]
    ignore: tuple[str, ...] = ()
    id: tuple[str, ...] = ()

    def digest(self, *others: str | int | None) -> str:
        """The same file with other choices (of columns, or these) is another import."""
        told = [sorted(self.fields.items()), sorted(self.ignore), self.id, others]
        return blake2b(msgspec.json.encode(told), digest_size=12).hexdigest()


class Fitted:
    """The chosen columns, fitted to a file. What is not chosen is the known field of that name, or keeps its own."""

    def __init__(self, chosen: Columns, columns: Sequence[str], known: Collection[str]) -> None:
        for column in (*chosen.fields, *chosen.ignore, *chosen.id):
            if columns and column not in columns:
                raise SourceError(f"there is no column {column!r}", hint=did_you_mean(column, columns, "columns are"))
        self._chosen = chosen
        taken = set(chosen.fields.values())
        _refuse_typos(chosen, [name for name in known if name not in taken])
        self._plain = {_plain(name): name for name in known if name not in taken}
        self._fields: dict[str, str] = {}
        kept = [column for column in columns if column not in chosen.ignore]
        self._fixed = {column: self._field(column) for column in kept}  # empty if every row has names of its own
        filled = set(self._fixed.values())
        self.overlooked = {
            column: meant
            for column, field in self._fixed.items()
            if column not in chosen.fields and (meant := ALSO_CALLED.get(_plain(field), "")) in known
            if meant not in filled
        }
        """Columns that keep their names, and the fields that they probably are."""
        twice = self._twice(columns)
        if twice is not None:
            raise SourceError(twice, hint="map or ignore one of them")
        if columns and not any(field in known for field in self._fixed.values()):
            raise SourceError(
                "no column tells people apart",
                hint=f"map one of them ({', '.join(columns)}) to one of {', '.join(known)}, as in Email=email",
            )

    def fields(self, row: Row) -> dict[str, str]:
        """What the row says, by its fields. Raises `ValueError` if two of its columns are one field."""
        if fixed := self._fixed:
            return {fixed[column]: value for column, value in row.values.items() if column in fixed}
        ignored = self._chosen.ignore
        found = {self._field(column): value for column, value in row.values.items() if column not in ignored}
        if len(found) < len(row.values) and (twice := self._twice(tuple(row.values))):
            raise ValueError(twice)
        return found

    def key(self, row: Row, fields: Mapping[str, str]) -> str:
        """What names the row; if nothing does, its content."""
        if self._chosen.id:
            parts = tuple(row.values.get(column, "") for column in self._chosen.id)
            if any(part.strip() for part in parts):
                return key_of(parts)
        for field in NAMES_A_ROW:
            named = fields.get(field, "")
            if named.strip():
                return key_of((named.lower() if field == "email" else named,))
        return f"={fingerprint(fields)}"

    def _field(self, column: str) -> str:
        found = self._fields.get(column)
        if found is None:
            found = self._chosen.fields.get(column) or self._plain.get(_plain(column), column)
            if len(self._fields) < MOST_NAMES:
                self._fields[column] = found
        return found

    def _twice(self, columns: Sequence[str]) -> str | None:
        before: dict[str, str] = {}
        for column in columns:
            if column not in self._chosen.ignore:
                field = self._field(column)
                if field in before:
                    return f"the columns {before[field]!r} and {column!r} are both {field}"
                before[field] = column
        return None


def _refuse_typos(chosen: Columns, free: Sequence[str]) -> None:
    """A field of one's own is fine; one that is nearly a known field would silently tell nobody apart."""
    from difflib import get_close_matches  # here, because most names are right

    for column, field in chosen.fields.items():
        meant = [name for name in (ALSO_CALLED.get(_plain(field)),) if name in free]
        near = [] if field in free else meant or get_close_matches(field, free, n=1, cutoff=NEARLY)
        if near:
            raise SourceError(
                f"{column!r} is mapped to {field!r}, which is {'' if meant else 'nearly '}{near[0]!r}",
                hint=f"write {near[0]}; a field of your own may be named like its column, without a mapping",
            )


def _plain(name: str) -> str:
    """`E-Mail` is `email`, `Given Name` is `given_name`."""
    return re.sub(r"[^0-9a-z]", "", name.lower())
