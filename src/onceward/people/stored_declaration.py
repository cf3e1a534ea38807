"""Open `People` with the fields stored in the database: for commands that know only the URL."""

from __future__ import annotations

from pathlib import Path

import msgspec

from onceward.errors import StoreBroken

from . import kinds
from . import tables as sql
from .databases import open_database
from .fields import Field, FieldDeclaration
from .kinds import FieldKind
from .people import People

_KINDS = {kind.name: kind for kind in vars(kinds).values() if isinstance(kind, FieldKind)}


def open_declared_people(url: str) -> People:
    """Open people with the stored fields. Fields of a custom kind are omitted, because their code is not available."""
    _must_exist(url)
    database = open_database(url)
    try:
        with database.reading() as tables:
            found = tables.run(sql.GET_META, "declared")
    finally:
        database.close()
    if not found:
        return People(url)
    declared = msgspec.json.decode(found[0][0], type=FieldDeclaration)
    fields = {name: Field(_KINDS[kind], strong) for name, (kind, strong) in declared.fields.items() if kind in _KINDS}
    return People(url, fields=fields, policies=declared.policies, default_policy=declared.default_policy)


def _must_exist(url: str) -> None:
    """Raise if the SQLite file does not exist: opening it would create it."""
    if url.lower().startswith("sqlite://"):
        from onceward.stores.sqlite.url import parse

        path, _ = parse(url)
        if not Path(path).is_file():
            raise StoreBroken(f"the file {path} does not exist", hint="pass the people's database with --people")
