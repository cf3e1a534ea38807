"""From a URL to a warehouse."""

from __future__ import annotations

from onceward.errors import ConfigurationError

from .port import Warehouse

EXAMPLES = "write duckdb:///relative.duckdb, duckdb:////absolute/path.duckdb, sqlite:///house.db or postgresql://…"


def open_warehouse(url: str) -> Warehouse:
    """The warehouse that the URL names, connected."""
    scheme = url.partition("://")[0].lower()
    if scheme == "duckdb":
        from .duck import DuckWarehouse  # each driver is paid for by those who use it
        from .duck_url import parse

        return DuckWarehouse(parse(url))
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
