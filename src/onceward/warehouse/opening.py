"""From a URL to a warehouse."""

from __future__ import annotations

from urllib.parse import unquote

from onceward.errors import ConfigurationError

from .port import Warehouse

EXAMPLES = "write duckdb:///relative.duckdb, duckdb:////absolute/path.duckdb, sqlite:///house.db or postgresql://…"
MEMORY = ":memory:"


def open_warehouse(url: str) -> Warehouse:
    """The warehouse that the URL names, connected."""
    scheme = url.partition("://")[0].lower()
    if scheme == "duckdb":
        from .duck import DuckWarehouse  # each driver is paid for by those who use it

        return DuckWarehouse(_path(url))
    if scheme == "sqlite":
        from .sqlite import SQLiteWarehouse

        return SQLiteWarehouse(url)
    if scheme in ("postgresql", "postgres"):
        from .postgres import PostgresWarehouse

        return PostgresWarehouse(url)
    if scheme == "bigquery":
        from .bigquery import BigQueryWarehouse

        return BigQueryWarehouse(url)
    raise ConfigurationError(f"no warehouse is known for {scheme}://", hint=EXAMPLES)


def _path(url: str) -> str:
    place = url.partition("://")[2]
    if place == MEMORY:
        return MEMORY
    path = unquote(place[1:])
    if not place.startswith("/") or not path or "\0" in path:
        raise ConfigurationError(f"{url!r} names no file", hint=EXAMPLES)
    return path
