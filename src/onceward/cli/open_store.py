"""The store that the settings name, opened for as long as a command needs it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from onceward.errors import ConfigurationError, StoreBroken
from onceward.protocol.capabilities import RefusesUnsafe
from onceward.protocol.ports import Store
from onceward.runtime.bridge import run
from onceward.runtime.threads import ThreadRuntime
from onceward.stores.registry import open_store, scheme_of
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.connection import MEMORY
from onceward.stores.sqlite.errors import explain
from onceward.stores.sqlite.schema import LATEST
from onceward.stores.sqlite.url import parse

from .settings import masked

TIMEOUT = 5.0  # seconds for a look at one record
SEARCH = 60.0  # ... and at all of them: a person waits


@contextmanager
def opened(url: str, *, although_unsafe: bool = False) -> Iterator[Store]:
    """The store, which must be there: looking at records never makes a file, a table or a change of schema.

    `although_unsafe`: also one that is refused for work because what it holds may vanish.
    """
    store = existing(url)
    if although_unsafe and isinstance(store, RefusesUnsafe):
        run(store.open_to_look(ThreadRuntime()))
    else:
        run(store.open(ThreadRuntime()))
    try:
        yield store
    finally:
        run(store.close())


def existing(url: str) -> Store:
    refuse_private(url)
    if not is_sqlite(url):
        return open_store(url)
    path, settings = parse(url)
    version = file_facts(path).get("schema_version", 0)
    if isinstance(version, int) and version < LATEST:
        raise StoreBroken(f"{path} has schema version {version}, and {LATEST} is needed", hint="run: onceward migrate")
    return SQLiteStore(path, synchronous=settings.get("synchronous", "FULL"), migrate=False)


def is_sqlite(url: str) -> bool:
    return scheme_of(url) == "sqlite"


def refuse_private(url: str) -> None:
    """A store in the memory of this process would be empty, and gone at once."""
    if scheme_of(url) == "memory" or (is_sqlite(url) and parse(url)[0] == MEMORY):
        raise ConfigurationError(
            f"{masked(url)} lives inside of one process, and this command is one of its own",
            hint="name a store that processes share: --store sqlite:///onceward.db",
        )


def file_facts(path: str) -> dict[str, object]:
    """Schema version and journal mode of a SQLite file, read without changing a byte of it."""
    file = Path(path).absolute()
    name = f"sqlite:///{path}"
    if not file.is_file():
        what = "is a directory" if file.is_dir() else "does not exist"
        raise StoreBroken(
            f"{file} {what}",
            hint="name the store that your program uses: --store sqlite:///path.db or $ONCEWARD_STORE_URL"
            " (`onceward config` tells where this one comes from)",
        )
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=TIMEOUT)) as connection:
            facts = {"journal_mode": connection.execute("PRAGMA journal_mode").fetchone()[0]}
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "onceward_meta" not in tables:
                raise StoreBroken(
                    f"{file} is a database without records of Onceward", hint="check the path in the store's URL"
                )
            facts.update(connection.execute("SELECT name, value FROM onceward_meta").fetchall())
    except sqlite3.Error as error:
        raise explain(error, name, path) from error
    return facts
