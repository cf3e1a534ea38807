"""Guard the transaction of a SQLAlchemy session while `idem.transaction(session)` is open.

A commit in the block would commit rows without their response. A rollback after `tx.respond(…)` would commit a response
without its rows. In autocommit mode there is no transaction at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onceward.errors import ConfigurationError
from onceward.stores.caller_connection import begin_before_savepoints


class SessionGuard:
    """Listens to one session until `stop`. Other connections are only checked for autocommit mode."""

    def __init__(self, session: Any, on_rollback: Callable[[], None]) -> None:
        """`on_rollback` is called if rows that the response describes are rolled back."""
        self._connection = session
        self._session = getattr(session, "sync_session", session)
        self._is_session = hasattr(self._session, "get_nested_transaction")
        self._on_rollback = on_rollback
        self._described: list[Any] = []  # the transactions that were open when the response was handed over
        self._listeners: list[tuple[str, Callable[..., None]]] = []

    def start(self) -> None:
        if not self._is_session:
            check_autocommit(self._session)
            return
        from sqlalchemy import event

        self._listeners = [
            ("before_commit", self._refuse_commit),
            ("after_begin", self._check_connection),
            ("after_soft_rollback", self._after_rollback),
            ("after_transaction_end", self._after_end),
        ]
        for name, listener in self._listeners:
            event.listen(self._session, name, listener)

    async def check_begun(self) -> None:
        """Begin the transaction of the session, and check its connection. With a sync session, this never suspends."""
        if self._is_session:
            connection = self._connection.connection()
            _check(connection if self._connection is self._session else (await connection).sync_connection)

    def stop(self) -> None:
        for name, listener in self._listeners:
            from sqlalchemy import event

            event.remove(self._session, name, listener)
        self._listeners = []

    def response_handed_over(self) -> None:
        """Remember the transactions whose rows the response describes."""
        self._described = []
        if self._is_session:
            transaction = self._session.get_nested_transaction() or self._session.get_transaction()
            while transaction is not None:
                self._described.append(transaction)
                transaction = transaction.parent

    # Bound methods, one set for each block: SQLAlchemy registers the same function only once.

    def _refuse_commit(self, session: Any) -> None:
        if not session.in_nested_transaction():
            raise ConfigurationError(
                "session.commit() was called inside idempotency.transaction(session)",
                hint="the end of the block commits; use session.flush() to get generated values",
            )

    def _check_connection(self, _session: Any, _transaction: Any, connection: Any) -> None:
        _check(connection)

    def _after_rollback(self, _session: Any, transaction: Any) -> None:
        if transaction in self._described:
            self._on_rollback()

    def _after_end(self, _session: Any, transaction: Any) -> None:
        """Handle `session.close()`, which rolls back without the event of a rollback."""
        if transaction.parent is None and transaction in self._described:
            self._on_rollback()


def check_autocommit(connection: Any) -> None:
    """Raise if each statement on this connection of a driver is committed at once."""
    is_autocommit = getattr(connection, "autocommit", None) is True
    if getattr(connection, "isolation_level", "") is None and hasattr(connection, "in_transaction"):  # SQLite
        is_autocommit = not connection.in_transaction
    if is_autocommit:
        raise ConfigurationError(
            "this connection is in autocommit mode, so rows and response cannot be committed together",
            hint="use a connection or an engine without AUTOCOMMIT for idempotency.transaction(…)",
        )


def _check(connection: Any) -> None:
    """Check a Connection of SQLAlchemy."""
    check_autocommit(_driver_connection(connection))
    begin_before_savepoints(connection)


def _driver_connection(connection: Any) -> Any:
    """Return the driver's connection of a Connection of SQLAlchemy. Of asyncpg, its adapter knows about autocommit."""
    pooled = connection.connection
    return pooled.driver_connection if connection.dialect.name == "sqlite" else pooled.dbapi_connection
