"""Open the warehouse for a URL."""

from __future__ import annotations

from onceward.errors import ConfigurationError, MissingExtra
from onceward.protocol.secrets import url_without_secrets

from .port import Warehouse

EXAMPLES = "write duckdb:///relative.duckdb, duckdb:////absolute/path.duckdb, sqlite:///house.db or postgresql://…"


def open_warehouse(url: str) -> Warehouse:
    """Return the warehouse for a `url`, connected: `duckdb://`, `sqlite://`, `postgresql://` or `bigquery://`.

    Raises:
        ConfigurationError: The URL has another scheme, or cannot be read.
        MissingExtra: The driver is not installed.
    """
    scheme = url.partition("://")[0].lower()
    if scheme == "duckdb":
        from .duck import DuckWarehouse  # imported here: only the driver that is used must be installed
        from .duck_url import parse

        return DuckWarehouse(parse(url))
    if scheme == "sqlite":
        from .sqlite import SQLiteWarehouse

        return SQLiteWarehouse(url)
    if scheme in ("postgresql", "postgres"):
        from .postgres import PostgresWarehouse

        return PostgresWarehouse(url)
    if scheme == "bigquery":
        try:
            from .bigquery import BigQueryWarehouse
        except ModuleNotFoundError as error:
            raise MissingExtra("google-cloud-bigquery is not installed", hint="install onceward[bigquery]") from error
        return BigQueryWarehouse(url)
    raise ConfigurationError(f"no warehouse is available for {url_without_secrets(url)!r}", hint=EXAMPLES)
