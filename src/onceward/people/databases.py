"""Open the database with the tables of people from a URL."""

from __future__ import annotations

from onceward.errors import ConfigurationError, MissingExtra
from onceward.protocol.secrets import url_without_secrets

from .tables import Database


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
