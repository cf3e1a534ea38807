"""Open a store on the database of `DATABASES`, with connections of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from django.core.exceptions import ImproperlyConfigured

from onceward.errors import MissingExtra

if TYPE_CHECKING:
    from onceward.protocol.ports import Clock, Store
    from onceward.stores.postgres.url import PostgresSettings


def database_store(connection: Any, clock: Clock | None) -> Store:
    """Return a store on the same database as this connection of Django. It is not opened yet."""
    if connection.vendor == "sqlite":
        from onceward.stores.sqlite import SQLiteStore

        return SQLiteStore(connection.settings_dict["NAME"], migrate=False, clock=clock)
    require_supported(connection)
    from onceward.stores.postgres import PostgresStore

    return PostgresStore(postgres_settings(connection), clock=clock)


def require_supported(connection: Any) -> None:
    """Raise if Onceward cannot keep records in this database."""
    if connection.vendor not in ("sqlite", "postgresql"):
        raise ImproperlyConfigured(
            f"Onceward cannot keep its records in {connection.alias!r}, a database of the kind {connection.vendor}; "
            "set ONCEWARD['DATABASE'] to the alias of a PostgreSQL or SQLite database"
        )
    if connection.vendor == "postgresql":
        try:
            import psycopg  # noqa: F401 (is it installed?)
        except ModuleNotFoundError as error:
            raise MissingExtra(
                "Onceward needs psycopg 3 for a PostgreSQL database of Django",
                hint='pip install "onceward[postgres]" "psycopg[binary]"',
            ) from error


def postgres_settings(connection: Any) -> PostgresSettings:
    """Return the settings with which Django connects, as far as libpq knows them. `search_path` is one of them."""
    from psycopg import pq
    from psycopg.conninfo import make_conninfo

    from onceward.stores.postgres.url import PostgresSettings

    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    parameters = connection.get_connection_params()
    given = {name: value for name, value in parameters.items() if name in known and value not in ("", None)}
    given |= {"client_encoding": "utf8"}
    given.setdefault("fallback_application_name", "onceward")
    return PostgresSettings(conninfo=make_conninfo("", **given), name=_display_name(given))


def _display_name(parameters: dict[str, Any]) -> str:
    """Return the URL of the database for messages, without the password."""
    user, host, port = (str(parameters.get(name, "")) for name in ("user", "host", "port"))
    place = (f"{quote(user)}@" if user else "") + quote(host, safe="") + (f":{port}" if port else "")
    return f"postgresql://{place}/{quote(str(parameters.get('dbname', '')))}"
