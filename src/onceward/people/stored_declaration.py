"""People as they were declared where they were filled: for a command that knows the database only."""

from __future__ import annotations

from pathlib import Path

import msgspec

from onceward.errors import StoreBroken

from . import kinds
from . import tables as sql
from .databases import open_database
from .fields import Declaration, Field
from .kinds import FieldKind
from .people import People

_KINDS = {kind.name: kind for kind in vars(kinds).values() if isinstance(kind, FieldKind)}


def noted_people(url: str) -> People:
    """Opened as declared. A kind of somebody's own is not known here, and compared with nothing."""
    _must_exist(url)
    database = open_database(url)
    try:
        with database.reading() as tables:
            found = tables.rows(sql.META, "declared")
    finally:
        database.close()
    if not found:
        return People(url)
    declared = msgspec.json.decode(found[0][0], type=Declaration)
    fields = {name: Field(_KINDS[kind], strong) for name, (kind, strong) in declared.fields.items() if kind in _KINDS}
    return People(url, fields=fields, policies=declared.policies, default_policy=declared.default_policy)


def _must_exist(url: str) -> None:
    """To look is not to make."""
    if url.lower().startswith("sqlite://"):
        from onceward.stores.sqlite.url import parse

        path, _ = parse(url)
        if not Path(path).is_file():
            raise StoreBroken(f"there is no file {path}", hint="name the people's database with --people")
