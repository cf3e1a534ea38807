"""The layout of documents: which field holds what, under Onceward's names or those that a collection already uses.

A field that is named here is a field of the document under that name. Everything else that Onceward needs is in one
map, `onceward`. So a document looks like what its readers expect, with one additional field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from onceward.errors import ConfigurationError
from onceward.protocol.latest import DedupMark, EntityState
from onceward.protocol.record import Record
from onceward.protocol.suggest import closest_name

Path = tuple[str, ...]

EXPIRY: Final = "expire_at"
REST: Final = "onceward"
EXPIRES: Final = "expires_at"
"""The expiry of marks and states, always stored in the field `expiry`."""

SHOWN: Final = {
    name: name
    for name in (
        "scope", "key", "state", "owner", "attempt", "created_at", "updated_at", "lease_until", "retry_at",
        "valid_until", "error_type", "error", "note",
    )
}  # fmt: skip
"""The fields of a record that are document fields by default."""

SHOWN_OF_MARK: Final = {"trace": "message_id", "created_at": "created_at"}
SHOWN_OF_STATE: Final = {"scope": "scope", "entity": "entity", "updated_at": "updated_at"}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_RESERVED = re.compile(r"__.*__")


class Layout(Struct, frozen=True):
    """The names of document fields. `fields`, `marks` and `states` map Onceward's names to the document's.

    Each note named in `notes` gets a field, too. `expiry` is the field for Firestore's TTL policy. `show_values`: copy
    the members of a state's value into fields of its document, for display and queries. Onceward reads only the copy in
    `onceward`.
    """

    fields: Mapping[str, str] = field(default_factory=SHOWN.copy)
    notes: tuple[str, ...] = ()
    marks: Mapping[str, str] = field(default_factory=SHOWN_OF_MARK.copy)
    states: Mapping[str, str] = field(default_factory=SHOWN_OF_STATE.copy)
    expiry: str = EXPIRY
    show_values: bool = False

    def __post_init__(self) -> None:
        kinds = (
            (self.fields, Record, "records"),
            (self.marks, DedupMark, "marks"),
            (self.states, EntityState, "states"),
        )
        for names, kind, what in kinds:
            if names.get(EXPIRES, self.expiry) != self.expiry:
                raise ConfigurationError(
                    f"{what} expire by the field {self.expiry!r}", hint="rename that field with expiry="
                )
            shown = [name for field, name in names.items() if field != EXPIRES]
            if self.expiry in shown:
                raise ConfigurationError(
                    f"{self.expiry!r} is the field for the expiry policy and cannot hold another value"
                )
            _check([*shown, REST, self.expiry, *(self.notes if kind is Record else ())], what)
            for name in names:
                if name not in kind.__struct_fields__ or name == "id":
                    raise ConfigurationError(
                        f"{what} have no field {name!r}",
                        hint=f"{closest_name(name, kind.__struct_fields__)}use {', '.join(kind.__struct_fields__)}",
                    )

    def paths(self) -> dict[str, Path]:
        """Return the path of each field of a record."""
        return _paths(self.fields, Record.__struct_fields__)

    def mark_paths(self) -> dict[str, Path]:
        return {**_paths(self.marks, DedupMark.__struct_fields__), EXPIRES: (self.expiry,)}

    def state_paths(self) -> dict[str, Path]:
        return {**_paths(self.states, EntityState.__struct_fields__), EXPIRES: (self.expiry,)}


def _paths(names: Mapping[str, str], fields: tuple[str, ...]) -> dict[str, Path]:
    return {field: (names[field],) if field in names else (REST, field) for field in fields}


def _check(names: list[str], what: str) -> None:
    for name in names:
        if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
            raise ConfigurationError(
                f"{name!r} is not a valid field name for {what}",
                hint="use letters, digits and _, not a digit first, and not __like_this__",
            )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigurationError(f"{twice!r} names two fields of {what}", hint="give each its own name")
