"""Where learning records are kept: the warehouse, the users, and what was set aside. One call opens all three."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from examples.learning.records import Learning
from examples.learning.tables import IDENTIFIERS
from onceward import Once
from onceward.errors import ConfigurationError
from onceward.people import People
from onceward.warehouse import ComparesRows, open_warehouse

BOUNDED = "memory_limit=64MB&threads=2&primary_key=no"
"""What DuckDB may take, however large its file is: left alone, it is most of the machine, and an index over the
statements' ids would grow with them. Two threads, because each needs some of it."""


class Place(Struct, frozen=True):
    """Open, for as long as the block lasts."""

    learning: Learning
    once: Once


@contextmanager
def opened(folder: Path, server: str = "", kind: type[Learning] = Learning) -> Iterator[Place]:
    """In files of this folder (DuckDB, SQLite: of one process); or on a PostgreSQL server, for as many as there are.

    With a `server` of BigQuery, statements go there, and users stay in files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    house = server or f"duckdb:///{folder}/house.duckdb?{BOUNDED}"
    if server.startswith("postgres"):
        users = store = _with(server, "migrate=1")
    else:
        users, store = (f"sqlite:///{folder}/{name}.db?synchronous=NORMAL" for name in ("people", "aside"))
    warehouse = open_warehouse(house)
    if not isinstance(warehouse, ComparesRows):
        raise ConfigurationError(f"{warehouse.name} cannot compare statements", hint="all of ours can")
    try:
        with People(users, fields=IDENTIFIERS) as people, Once(store, app="learning") as once:
            yield Place(kind(people, warehouse), once)
    finally:
        warehouse.close()


def _with(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"
