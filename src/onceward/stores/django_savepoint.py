"""Savepoints of a joined transaction of Django: Django sets them itself.

Only then does Django drop the `on_commit` callbacks of a handler that failed, and clear `needs_rollback`. With a
savepoint that Django does not know about, those callbacks would run, and Django would later roll back everything.
"""

from __future__ import annotations

from typing import Any

from onceward.errors import ConfigurationError

MARKED_FOR_ROLLBACK = (
    "a database error was caught inside the handler, and Django marked its transaction for rollback; "
    "wrap the statement that may fail in transaction.atomic()"
)


def django_savepoint(connection: Any) -> DjangoSavepoint | None:
    """Return the savepoints of a connection of Django, or None if it is another connection."""
    if not any(cls.__module__.startswith("django.") for cls in type(connection).__mro__):
        return None
    return DjangoSavepoint(connection)


class UndoHandler(Exception):
    """Leaves a block of Django, so that Django rolls it back."""


class DjangoSavepoint:
    """Nested `transaction.atomic()` blocks on the caller's connection."""

    def __init__(self, connection: Any) -> None:
        from django.db import connections  # the caller has imported it

        alias = connection.alias
        if connections[alias] is not connection:
            raise ConfigurationError(
                f"this is not the connection that Django uses for {alias!r} in this thread",
                hint=f"pass django.db.connections[{alias!r}], in the thread that opened the transaction",
            )
        self._connection = connection
        self._blocks: list[Any] = []

    def begin(self) -> None:
        """Open a block. Raise Django's error if an earlier error has broken the transaction."""
        from django.db import transaction

        self._connection.validate_no_broken_transaction()
        block: Any = transaction.atomic(using=self._connection.alias)
        block.__enter__()
        self._blocks.append(block)

    def keep(self) -> bool:
        """Keep what was written in the block. False: the transaction has ended. If it raises, `undo` still works."""
        from django.db import Error, transaction

        if self._connection.needs_rollback:  # leaving the block now would roll it back, without an error
            raise transaction.TransactionManagementError(MARKED_FOR_ROLLBACK)
        try:
            self._blocks.pop().__exit__(None, None, None)
        except Error:  # there is no such savepoint, or no connection
            return False
        return True

    def undo(self) -> bool:
        """Roll the block back. False: the transaction has ended."""
        error = UndoHandler()
        self._blocks.pop().__exit__(UndoHandler, error, None)
        return not self._connection.needs_rollback  # set again if Django could not roll back to the savepoint
