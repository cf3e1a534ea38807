"""Open `People` with the fields stored in the database: for commands that know only the URL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from onceward.errors import StoreBroken

from . import kinds
from . import tables as sql
from .databases import open_database
from .fields import Field, FieldDeclaration
from .kinds import FieldKind
from .people import People

_KINDS = {kind.name: kind for kind in vars(kinds).values() if isinstance(kind, FieldKind)}


def open_declared_people(url: str, **settings: Any) -> People:
    """Open people with the stored fields. Fields of a custom kind are omitted, because their code is not available."""
    _must_exist(url)
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


def open_people(url: str, **settings: Any) -> People:
    """Open people with the stored fields, or with the default fields if there are none. None: as stored."""
    given = {name: value for name, value in settings.items() if value is not None}
    return open_declared_people(url, **given) if _exists(url) else People(url, **given)


def _must_exist(url: str) -> None:
    """Raise if the SQLite file does not exist: opening it would create it."""
    if not _exists(url):
        from onceward.stores.sqlite.url import parse

        raise StoreBroken(f"the file {parse(url)[0]} does not exist", hint="pass the people's database with --people")


def _exists(url: str) -> bool:
    """Return whether the database exists. A server's always does."""
    if not url.lower().startswith("sqlite://"):
        return True
    from onceward.stores.sqlite.url import parse

    return Path(parse(url)[0]).is_file()
