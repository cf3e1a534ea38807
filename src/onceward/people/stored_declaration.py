"""Open `People` with the fields stored in the database: for commands that know only the URL."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from onceward.errors import ConfigurationError, StoreBroken

from . import kinds
from . import tables as sql
from .base_database import open_database
from .fields import Field, FieldDeclaration
from .kinds import FieldKind
from .people import People
from .trust import UNTRUSTED

_KINDS = {kind.name: kind for kind in vars(kinds).values() if isinstance(kind, FieldKind)}


def open_declared_people(url: str, **settings: Any) -> People:
    """Open people with the stored fields. Fields of a custom kind are omitted, because their code is not available."""
    if path := _missing_file(url):  # opening it would create it
        raise StoreBroken(f"the file {path} does not exist", hint="pass the people's database with --people")
    database = open_database(url)
    try:
        with database.reading() as tables:
            found = tables.run(sql.GET_META, "declared")
    finally:
        database.close()
    if not found:
        return People(url, **settings)
    declared = msgspec.json.decode(found[0][0], type=FieldDeclaration)
    fields = {name: Field(_KINDS[kind], strong) for name, (kind, strong) in declared.fields.items() if kind in _KINDS}
    settings = {"rules": declared.rules, "trust": declared.trust} | settings
    return People(url, fields=fields, policies=declared.policies, default_policy=declared.default_policy, **settings)


def open_people(
    url: str, *, untrusted: Iterable[str] = (), more_fields: Iterable[tuple[str, str]] = (), **settings: Any
) -> People:
    """Open people with the stored settings, or with the defaults if there are none. None: as stored.

    `untrusted` sources and `more_fields` (names and kinds) are declared and stored, too.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    people = People(url, **given) if _missing_file(url) else open_declared_people(url, **given)
    trust = {source: UNTRUSTED for source in untrusted if source not in people.preset.trust}
    fields = {name: _field(name, kind) for name, kind in more_fields if name not in people.preset.fields}
    if not trust and not fields:
        return people
    preset = people.preset
    people.close()
    more = {"fields": {**preset.fields, **fields}, "trust": {**preset.trust, **trust}}
    changed = People(url, **(preset.settings() | more))
    changed.declare()
    return changed


def _field(name: str, kind: str) -> Field:
    """Return a field of this kind. `key` is an identifier that belongs to one person."""
    if kind == "key":
        return Field(kinds.EXTERNAL_ID, strong=True)
    if kind not in _KINDS:
        raise ConfigurationError(
            f"{name!r} cannot be a field of kind {kind!r}", hint=f"kinds are: key, {', '.join(sorted(_KINDS))}"
        )
    return Field(_KINDS[kind])


def _missing_file(url: str) -> str:
    """Return the path of the SQLite file if it does not exist, otherwise "". Databases on servers are not checked."""
    if not url.lower().startswith("sqlite://"):
        return ""
    from onceward.stores.sqlite.url import parse

    path = parse(url)[0]
    return "" if Path(path).is_file() else path
