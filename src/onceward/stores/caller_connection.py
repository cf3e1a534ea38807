"""The caller's connection, whatever wraps it: SQLAlchemy and Django hand out the driver's own underneath.

Nothing is imported here: whoever hands over such an object has its library loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward.errors import ConfigurationError
from onceward.protocol.runtime import Runtime

TO_BEGIN = "SELECT 1"
"""Wrappers begin a transaction with the first statement that they see."""


OVER, ANEW = "the transaction that was joined here is over", "open a block of within() in each transaction"


def is_async_wrapper(connection: Any) -> bool:
    """SQLAlchemy's AsyncSession and AsyncConnection: what is underneath has to be awaited."""
    return _of(connection, "sqlalchemy.") and hasattr(connection, "run_sync")


def driver_connection(connection: Any, runtime: Runtime) -> Any:
    """The driver's connection, on which the wrapper has begun its transaction; itself if nothing wraps it."""
    if _of(connection, "sqlalchemy."):
        if is_async_wrapper(connection):
            raise ConfigurationError(
                f"cannot join a {_name(connection)} here", hint="hand over a plain Session or Connection of SQLAlchemy"
            )
        if runtime.cancels:
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


class Unsent:
    """What a Session of SQLAlchemy has in hand and not yet sent: a savepoint that it knows nothing of misses that.

    So the caller's rows are sent before our savepoint, and the handler's are kept or undone with a nested transaction.
    """

    def __init__(self, connection: Any) -> None:
        self._session = connection if hasattr(connection, "begin_nested") and hasattr(connection, "flush") else None
        self._awaits = is_async_wrapper(connection)
        self._nested: list[Any] = []

    async def send(self) -> None:
        if self._session is not None:
            await self._done(self._session.flush())

    async def begin(self) -> None:
        if self._session is not None:
            nested = self._session.begin_nested()
            await self._done(nested)
            self._nested.append(nested)

    async def keep(self) -> None:
        """If it fails, it can still be undone."""
        if self._nested:
            if self._nested[-1].is_active:
                await self._done(self._nested[-1].commit())
            self._nested.pop()

    async def undo(self) -> None:
        if self._nested and self._stands(nested := self._nested.pop()):
            await self._done(nested.rollback())

    def _stands(self, nested: Any) -> bool:
        """A flush that failed leaves it inactive, but in place; a Session that has ended its transaction does not."""
        session: Any = getattr(self._session, "sync_session", self._session)
        one = getattr(nested, "sync_transaction", nested)
        return one is not None and (one.is_active or session.get_nested_transaction() is one)

    async def _done(self, call: Any) -> None:
        if self._awaits:
            await call


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
