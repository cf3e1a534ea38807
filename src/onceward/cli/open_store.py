"""Open the configured store for the duration of a command."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from onceward.errors import ConfigurationError, StoreBroken
from onceward.protocol.hints import migrate_hint
from onceward.protocol.ports import Store
from onceward.protocol.secrets import url_without_secrets
from onceward.runtime.threads import ThreadRuntime, run
from onceward.stores.registry import open_store, scheme_of
from onceward.stores.sqlite import SQLiteStore
from onceward.stores.sqlite.connection import MEMORY
from onceward.stores.sqlite.errors import explain
from onceward.stores.sqlite.schema import LATEST
from onceward.stores.sqlite.url import absolute, name_of, parse

TIMEOUT = 5.0  # seconds to read one record
SEARCH_TIMEOUT = 60.0  # seconds to scan all records, while the user waits


@contextmanager
def opened_store(url: str, *, allow_unsafe: bool = False) -> Iterator[Store]:
    """Open the store, which must exist: read-only commands never create files or tables, or migrate a schema.

    `allow_unsafe`: also open a store that programs refuse because it may lose data.
    """
    store = existing_store(url)
    if allow_unsafe and store.health is not None:
        run(store.health.open_for_inspection(ThreadRuntime()))
    else:
        run(store.open(ThreadRuntime()))
    try:
        yield store
    finally:
        run(store.close())


def existing_store(url: str) -> Store:
    raise_if_private(url)
    if not is_sqlite(url):
        return open_store(url)
    path, settings = parse(url)
    version = file_facts(path).get("schema_version", 0)
    if isinstance(version, int) and version < LATEST:
        raise StoreBroken(
            f"{path} has schema version {version}, but {LATEST} is required", hint=migrate_hint(f"sqlite:///{path}")
        )
    return SQLiteStore(path, synchronous=settings.get("synchronous", "FULL"), migrate=False)


def is_sqlite(url: str) -> bool:
    return scheme_of(url) == "sqlite"


def url_for_alerts(url: str) -> str:
    """Return the URL without secrets. It works in every folder: the path of a SQLite file is absolute."""
    return name_of(absolute(parse(url)[0])) if is_sqlite(url) else url_without_secrets(url)


def raise_if_private(url: str) -> None:
    """Raise for an in-memory store: in this process it would be empty, and lost at exit."""
    if scheme_of(url) == "memory" or (is_sqlite(url) and parse(url)[0] == MEMORY):
        raise ConfigurationError(
            f"{url_without_secrets(url)} exists only inside one process, and this command is another process",
            hint="use a store that processes share: --store sqlite:///onceward.db",
        )


def file_facts(path: str) -> dict[str, object]:
    """Read the schema version and journal mode of a SQLite file, without modifying it."""
    file = Path(path).absolute()
    name = f"sqlite:///{path}"
    if not file.is_file():
        what = "is a directory" if file.is_dir() else "does not exist"
        raise StoreBroken(
            f"{file} {what}",
            hint="use the store of your program: --store sqlite:///path.db or $ONCEWARD_STORE_URL"
            f" (`onceward config` shows where this one is set); to create it, {migrate_hint(name)}",
        )
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=TIMEOUT)) as connection:
            facts = {"journal_mode": connection.execute("PRAGMA journal_mode").fetchone()[0]}
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "onceward_meta" not in tables:
                raise StoreBroken(f"{file} is not an Onceward database", hint="check the path in the store's URL")
            facts.update(connection.execute("SELECT name, value FROM onceward_meta").fetchall())
    except sqlite3.Error as error:
        raise explain(error, name, path) from error
    return facts
