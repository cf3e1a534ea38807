"""Which field of a document holds what: by our own words, or by those that a collection has always had.

A field that is named here stands in the document under that name. Everything else that Onceward has to know stands
together in one map, `onceward`, so that a document looks like what its readers expect, with one field more.
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
"""Of marks and states: always in the field `expiry`."""

SHOWN: Final = {
    name: name
    for name in (
        "scope", "key", "state", "owner", "attempt", "created_at", "updated_at", "lease_until", "retry_at",
        "valid_until", "error_type", "error", "note",
    )
}  # fmt: skip
"""What a record shows unless it is said otherwise."""

SHOWN_OF_MARK: Final = {"trace": "message_id", "created_at": "created_at"}
SHOWN_OF_STATE: Final = {"scope": "scope", "entity": "entity", "updated_at": "updated_at"}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,200}")
_RESERVED = re.compile(r"__.*__")


class Layout(Struct, frozen=True):
    """The names of fields. `fields`, `marks` and `states` map our words to the document's; `notes` get fields too.

    `expiry` is the field for Firestore's own expiry policy. `show_values`: the members of a state's value are fields
    of its document, for people and for queries; what counts is the copy in `onceward`.
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
                raise ConfigurationError(f"{what} expire by the field {self.expiry!r}", hint="name that one by expiry=")
            shown = [name for field, name in names.items() if field != EXPIRES]
            if self.expiry in shown:
                raise ConfigurationError(
                    f"{self.expiry!r} is the field for the expiry policy, and cannot hold another one"
                )
            _check([*shown, REST, self.expiry, *(self.notes if kind is Record else ())], what)
            for name in names:
                if name not in kind.__struct_fields__ or name == "id":
                    raise ConfigurationError(
                        f"{what} have no field {name!r} that could be shown",
                        hint=f"{closest_name(name, kind.__struct_fields__)}they are: {', '.join(kind.__struct_fields__)}",
                    )

    def paths(self) -> dict[str, Path]:
        """Where each field of a record stands."""
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
                f"{name!r} cannot be the name of a field of {what}",
                hint="letters, digits and _, no digit first, and not __like_this__",
            )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigurationError(f"{twice!r} names two fields of {what}", hint="give each a name of its own")
