"""Unwrap the caller's connection: find the driver's connection below SQLAlchemy or Django.

Neither library is imported here: a caller that passes such an object has already imported it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward.errors import ConfigurationError
from onceward.protocol.runtime import Runtime

BEGIN_STATEMENT = "SELECT 1"
"""Wrappers begin a transaction with the first statement that they execute."""

TRANSACTION_ENDED = "the transaction that this block joined has ended"
TRANSACTION_ENDED_HINT = "open a new within() block in each transaction"


def is_async_wrapper(connection: Any) -> bool:
    """Return whether this is an AsyncSession or AsyncConnection of SQLAlchemy, whose connection must be awaited."""
    return _is_from(connection, "sqlalchemy.") and hasattr(connection, "run_sync")


def driver_connection(connection: Any, runtime: Runtime) -> Any:
    """Return the driver's connection, with the wrapper's transaction begun; `connection` itself if nothing wraps it."""
    if _is_from(connection, "sqlalchemy."):
        if is_async_wrapper(connection):
            raise ConfigurationError(
                f"cannot join a {_name(connection)} here", hint="pass a synchronous Session or Connection of SQLAlchemy"
            )
        if runtime.supports_cancellation:
            raise ConfigurationError(
                f"a {_name(connection)} would block the event loop", hint="pass an AsyncSession or AsyncConnection"
            )
        return _sqlalchemy(connection)
    if _is_from(connection, "django."):
        return _django(connection)
    return connection


def keeps_connection(connection: Any) -> Callable[[], bool]:
    """Return a check that the wrapper still uses the same driver connection.

    When the wrapper's transaction ends, its pool may hand the driver connection to another caller.
    """
    if _is_from(connection, "sqlalchemy."):
        sqlalchemy_connection = wrapped_connection(connection)
        return lambda: not (sqlalchemy_connection.closed or sqlalchemy_connection.invalidated)
    if _is_from(connection, "django."):
        driver = connection.connection
        return lambda: connection.connection is driver
    return lambda: True


def wrapped_connection(connection: Any) -> Any:
    """Return SQLAlchemy's Connection of a Session; `connection` itself if it is not a Session."""
    return connection.connection() if hasattr(connection, "get_bind") else connection


def is_invalidated(connection: Any) -> bool:
    """Return whether SQLAlchemy found this connection broken."""
    return bool(getattr(connection, "invalidated", False))


async def invalidate(connection: Any) -> None:
    """Tell SQLAlchemy that its connection was lost. Otherwise closing the Session raises, and hides our error."""
    if _is_from(connection, "sqlalchemy.") and not (connection.closed or connection.invalidated):
        invalidating = connection.invalidate()
        if is_async_wrapper(connection):
            await invalidating


class SessionSavepoint:
    """Flushes a SQLAlchemy Session around our savepoint, which the Session does not know about.

    The Session may hold changes that it has not sent yet. The caller's changes are flushed before our savepoint; the
    handler's changes are kept or rolled back with a nested transaction of the Session.
    """

    def __init__(self, connection: Any) -> None:
        self._session = connection if hasattr(connection, "begin_nested") and hasattr(connection, "flush") else None
        self._is_async = is_async_wrapper(connection)
        self._nested: list[Any] = []

    @property
    def exists(self) -> bool:
        return self._session is not None

    async def flush(self) -> None:
        if self._session is not None:
            await self._await(self._session.flush())

    async def begin(self) -> None:
        if self._session is not None:
            nested = self._session.begin_nested()
            await self._await(nested)
            self._nested.append(nested)

    async def commit(self) -> None:
        """Commit the nested transaction. If that fails, `rollback` still works."""
        if self._nested:
            if self._nested[-1].is_active:
                await self._await(self._nested[-1].commit())
            self._nested.pop()

    async def rollback(self) -> None:
        if self._nested and self._can_roll_back(nested := self._nested.pop()):
            await self._await(nested.rollback())

    def _can_roll_back(self, nested: Any) -> bool:
        """Return whether the nested transaction still exists.

        A failed flush leaves it inactive, but in place. If the Session has ended its transaction, it is gone.
        """
        session: Any = getattr(self._session, "sync_session", self._session)
        transaction = getattr(nested, "sync_transaction", nested)
        return transaction is not None and (transaction.is_active or session.get_nested_transaction() is transaction)

    async def _await(self, call: Any) -> None:
        if self._is_async:
            await call


async def async_driver_connection(connection: Any, seconds: float) -> tuple[Any, Any]:
    """Return the driver's connection and SQLAlchemy's, for its async wrappers, with the transaction begun in time."""
    from .loop_timeout import loop_timeout

    async with loop_timeout(seconds):
        if hasattr(connection, "get_raw_connection"):
            sqlalchemy_connection = connection
        else:
            sqlalchemy_connection = await connection.connection()
        if not begins_later(sqlalchemy_connection):
            await sqlalchemy_connection.exec_driver_sql(BEGIN_STATEMENT)
        elif not sqlalchemy_connection.in_transaction():
            await sqlalchemy_connection.begin()
        driver = (await sqlalchemy_connection.get_raw_connection()).driver_connection
    return driver, sqlalchemy_connection


def begins_later(sqlalchemy_connection: Any) -> bool:
    """Return whether SQLAlchemy's begin() sends nothing, so that we can begin the transaction with a deadline."""
    return bool(sqlalchemy_connection.dialect.driver.startswith("psycopg"))


def begin_before_savepoints(sqlalchemy_connection: Any) -> None:
    """Let SQLAlchemy begin a transaction on SQLite before its first savepoint.

    Python's driver begins one only before a row is changed. A savepoint outside of a transaction commits on RELEASE.
    """
    if sqlalchemy_connection.dialect.name == "sqlite":
        from sqlalchemy import event

        event.listen(sqlalchemy_connection, "savepoint", _begin_on_sqlite)  # a second call changes nothing


def begin_before_savepoints_of(async_wrapper: Any) -> None:
    """Do the same for every transaction that an AsyncSession or AsyncConnection begins from now on."""
    from sqlalchemy import event

    if hasattr(async_wrapper, "sync_session"):
        event.listen(async_wrapper.sync_session, "after_begin", _after_begin)  # a second call changes nothing
    elif async_wrapper.sync_connection is not None:
        begin_before_savepoints(async_wrapper.sync_connection)


def _after_begin(_session: Any, _transaction: Any, sqlalchemy_connection: Any) -> None:
    begin_before_savepoints(sqlalchemy_connection)


def _begin_on_sqlite(sqlalchemy_connection: Any, _savepoint: str) -> None:
    if not sqlalchemy_connection.connection.driver_connection.in_transaction:
        sqlalchemy_connection.exec_driver_sql("BEGIN")


def transaction_block(connection: Any) -> str:
    """Return the code that follows `with` to open a transaction on such a connection. Used in messages."""
    if _is_from(connection, "sqlalchemy."):
        return "session.begin()" if "Session" in type(connection).__name__ else "connection.begin()"
    if _is_from(connection, "django."):
        return "transaction.atomic()"
    return "connection" if _is_from(connection, "sqlite3") else "connection.transaction()"


def _sqlalchemy(connection: Any) -> Any:
    sqlalchemy_connection = wrapped_connection(connection)
    if not hasattr(sqlalchemy_connection, "exec_driver_sql"):
        raise ConfigurationError(f"cannot join a {_name(connection)}", hint="pass a Session or a Connection")
    if not begins_later(sqlalchemy_connection):
        sqlalchemy_connection.exec_driver_sql(BEGIN_STATEMENT)
    elif not sqlalchemy_connection.in_transaction():
        sqlalchemy_connection.begin()
    begin_before_savepoints(sqlalchemy_connection)
    return sqlalchemy_connection.connection.driver_connection


def _django(connection: Any) -> Any:
    if not hasattr(connection, "ensure_connection"):
        raise ConfigurationError(f"cannot join a {_name(connection)}", hint="from django.db import connection")
    if not connection.in_atomic_block:
        if not connection.get_autocommit():
            raise ConfigurationError(
                "Django's autocommit is off here, and no atomic() block is open",
                hint="wrap the call in one: with transaction.atomic():",
            )
        raise ConfigurationError(
            "Django is in autocommit mode here, so there is no transaction to join",
            hint="open one first: with transaction.atomic():",
        )
    connection.ensure_connection()
    return connection.connection


def _is_from(connection: Any, package: str) -> bool:
    return any(cls.__module__.startswith(package) for cls in type(connection).__mro__)


def _name(connection: Any) -> str:
    return f"{type(connection).__module__}.{type(connection).__qualname__}"
