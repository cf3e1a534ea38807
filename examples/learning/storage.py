"""Opens the storage of learning records: the warehouse, the users, and the store of parked messages."""

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

DUCKDB_LIMITS = "memory_limit=64MB&threads=2&primary_key=no"
"""Limits DuckDB's memory, however large its file is. By default it uses most of the machine, and an index over the
statement ids would grow with them. Two threads, because each thread needs memory."""


class Storage(Struct, frozen=True):
    """The open storage, valid inside the `with` block."""

    learning: Learning
    once: Once


@contextmanager
def open_storage(
    folder: Path, server: str = "", kind: type[Learning] = Learning, *, users: str = ""
) -> Iterator[Storage]:
    """Open files in this folder (DuckDB, SQLite: for one process) or a PostgreSQL server, for any number of processes.

    With a BigQuery URL as `server`, statements are stored there, and users in files or in the database `users`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    house = server or f"duckdb:///{folder}/house.duckdb?{DUCKDB_LIMITS}"
    shared = users or (server if server.startswith("postgres") else "")
    if shared.startswith("postgres"):
        users = store = _with(shared, "migrate=1")
    else:
        users, store = (f"sqlite:///{folder}/{name}.db?synchronous=NORMAL" for name in ("people", "aside"))
        users = shared or users
    warehouse = open_warehouse(house)
    if not isinstance(warehouse, ComparesRows):
        raise ConfigurationError(f"{warehouse.name} cannot compare statements", hint="all built-in warehouses can")
    try:
        with People(users, fields=IDENTIFIERS) as people, Once(store, app="learning") as once:
            yield Storage(kind(people, warehouse), once)
    finally:
        warehouse.close()


def _with(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{option}"
