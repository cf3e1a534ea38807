"""The caller's connection, whatever wraps it: SQLAlchemy and Django hand out the driver's own underneath.

Nothing is imported here: whoever hands over such an object has its library loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward.errors import ConfigurationError
from onceward.ports import World

TO_BEGIN = "SELECT 1"
"""Wrappers begin a transaction with the first statement that they see."""


OVER, ANEW = "the transaction that was joined here is over", "open a block of within() in each transaction"


def is_async_wrapper(connection: Any) -> bool:
    """SQLAlchemy's AsyncSession and AsyncConnection: what is underneath has to be awaited."""
    return _of(connection, "sqlalchemy.") and hasattr(connection, "run_sync")


def driver_connection(connection: Any, world: World) -> Any:
    """The driver's connection, on which the wrapper has begun its transaction; itself if nothing wraps it."""
    if _of(connection, "sqlalchemy."):
        if is_async_wrapper(connection):
            raise ConfigurationError(
                f"cannot join a {_name(connection)} here", hint="hand over a plain Session or Connection of SQLAlchemy"
            )
        if world.cancels:
            raise ConfigurationError(
                f"a {_name(connection)} would block the event loop", hint="hand over an AsyncSession or AsyncConnection"
            )
        return _sqlalchemy(connection)
    if _of(connection, "django."):
        return _django(connection)
    return connection


def still_lent(connection: Any) -> Callable[[], bool]:
    """Asks whether the wrapper still has what it was joined with: after its end a pool lends that to somebody else."""
    if _of(connection, "sqlalchemy."):
        theirs = connection.connection() if hasattr(connection, "get_bind") else connection
        return lambda: not (theirs.closed or theirs.invalidated)
    if _of(connection, "django."):
        own = connection.connection
        return lambda: connection.connection is own
    return lambda: True


async def awaited_driver_connection(connection: Any) -> tuple[Any, Callable[[], bool]]:
    """As the two above, for SQLAlchemy's async wrappers."""
    if hasattr(connection, "get_raw_connection"):
        theirs = connection
    else:
        theirs = await connection.connection()
    await theirs.exec_driver_sql(TO_BEGIN)
    own = (await theirs.get_raw_connection()).driver_connection
    return own, still_lent(theirs)


def block_of(connection: Any) -> str:
    """What is written behind `with` for a transaction on such a connection."""
    if _of(connection, "sqlalchemy."):
        return "session.begin()" if "Session" in type(connection).__name__ else "connection.begin()"
    if _of(connection, "django."):
        return "transaction.atomic()"
    return "connection" if _of(connection, "sqlite3") else "connection.transaction()"


def _sqlalchemy(connection: Any) -> Any:
    theirs = connection.connection() if hasattr(connection, "get_bind") else connection
    if not hasattr(theirs, "exec_driver_sql"):
        raise ConfigurationError(f"cannot join a {_name(connection)}", hint="hand over a Session or a Connection")
    theirs.exec_driver_sql(TO_BEGIN)
    return theirs.connection.driver_connection


def _django(connection: Any) -> Any:
    if not hasattr(connection, "ensure_connection"):
        raise ConfigurationError(f"cannot join a {_name(connection)}", hint="from django.db import connection")
    if not connection.in_atomic_block:
        raise ConfigurationError(
            "Django commits every statement by itself here, so there is no transaction to join",
            hint="open one first: with transaction.atomic():",
        )
    connection.ensure_connection()
    return connection.connection


def _of(connection: Any, package: str) -> bool:
    return any(kind.__module__.startswith(package) for kind in type(connection).__mro__)


def _name(connection: Any) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
