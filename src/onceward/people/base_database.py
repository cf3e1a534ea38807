"""What the databases of people on SQLite and PostgreSQL share: transactions and the creation of tables."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Final, Generic, TypeVar

from onceward.errors import ConfigurationError, MissingExtra, StoreBroken, StoreUnavailable
from onceward.protocol.secrets import url_without_secrets

from . import schema
from . import tables as sql
from .tables import Database, Tables

META: Final = "onceward_people_meta"

C = TypeVar("C")


class BaseDatabase(ABC, Generic[C]):
    """Connects on first use, and again after a fork. Used by one thread at a time. `C` is the driver's connection."""

    name: str
    begin: ClassVar[str]
    begin_reading: ClassVar[str]
    """The statement that begins a read transaction. All its queries see one snapshot."""

    driver_error: ClassVar[type[Exception]]
    first_meta: ClassVar[Mapping[str, str]] = {"version": schema.VERSION}

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._connection: C | None = None

    @property
    @abstractmethod
    def connection(self) -> C:
        """The driver's connection."""

    @abstractmethod
    def _tables(self, connection: C) -> Tables: ...

    @abstractmethod
    def _is_open(self, connection: C) -> bool:
        """Return whether the connection is in a transaction."""

    @abstractmethod
    def _translate(self, error: Any) -> Exception: ...

    def _lock_creation(self, tables: Tables, reason: str) -> None:  # noqa: ARG002 (for those that may refuse)
        """Begin a transaction in which no other process creates or upgrades the tables."""
        tables.execute(self.begin, ())

    def _create_schema(self, tables: Tables) -> None:
        """Create what the tables need."""

    def _commit(self, connection: C) -> None:
        self._tables(connection).execute("COMMIT", ())

    def _roll_back(self, connection: C) -> None:
        if self._is_open(connection):
            with suppress(self.driver_error):
                self._tables(connection).execute("ROLLBACK", ())

    @contextmanager
    def transaction(self) -> Iterator[Tables]:
        """Open a transaction: committed at the end of the block, rolled back if it raises."""
        with self._lock, self._explained():
            connection = self.connection
            if self._is_open(connection):
                raise StoreUnavailable(
                    f"{self.name}: this People already has an open transaction", hint="use that transaction's block"
                )
            tables = self._tables(connection)
            tables.execute(self.begin, ())
            try:
                yield tables
                self._commit(connection)
            finally:
                self._roll_back(connection)

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        with self._lock, self._explained():
            connection = self.connection
            tables = self._tables(connection)
            is_ours = not self._is_open(connection)
            try:
                if is_ours:
                    tables.execute(self.begin_reading, ())
                yield tables
            finally:
                if is_ours:
                    self._roll_back(connection)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except self.driver_error as error:
            raise self._translate(error) from error

    def _create_tables(self, connection: C, placeholders: Mapping[str, str]) -> None:
        """Create the tables if they do not exist, or upgrade them. Raise if a newer Onceward created them."""
        tables = self._tables(connection)
        if not tables.has_table(META):
            self._lock_creation(tables, "has no tables of people")
            if not tables.has_table(META):  # another process may have created them meanwhile
                self._create_schema(tables)
                for statement in schema.statements(schema.TABLES, placeholders):
                    tables.execute(statement, ())
                tables.run_many(schema.ADD_META, list(self.first_meta.items()))
            tables.execute("COMMIT", ())
        version = _version(tables)
        if version in schema.UPGRADES:
            self._lock_creation(tables, f"has people of version {version}")
            version = _version(tables)  # another process may have been faster
            if version in schema.UPGRADES:
                for statement in schema.statements(schema.UPGRADES[version], placeholders):
                    tables.execute(statement, ())
                version = _version(tables)
            tables.execute("COMMIT", ())
        if version != schema.VERSION:
            raise StoreBroken(f"{self.name} has people of version {version}", hint="upgrade Onceward in this process")

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()

    @abstractmethod
    def close(self) -> None: ...


def _version(tables: Tables) -> str:
    [(version,)] = tables.run(sql.GET_META, "version")
    return str(version)


def open_database(url: str) -> Database:
    """Return the database of this URL. It connects on first use."""
    scheme = url.partition("://")[0].lower()
    if scheme == "sqlite":
        from .on_sqlite import SQLiteDatabase

        return SQLiteDatabase(url)
    if scheme in ("postgresql", "postgres"):
        try:
            from .on_postgres import PostgresDatabase
        except ModuleNotFoundError as error:
            raise MissingExtra(
                f"people on {scheme}:// need the module {error.name!r}", hint="install onceward[postgres]"
            ) from error
        return PostgresDatabase(url)
    raise ConfigurationError(
        f"people cannot be stored on {url_without_secrets(url)!r}",
        hint="use sqlite:///people.db or postgresql://user@host/database",
    )
