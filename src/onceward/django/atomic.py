"""`once.atomic()` and `once.within(connection)` in Django: nothing is reported as done that Django later undoes."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction

from onceward.operations.decorator import P, T
from onceward.operations.transaction import Within
from onceward.protocol.outcome import Outcome
from onceward.runtime.threads import run

from .configuration import configuration

if TYPE_CHECKING:
    from onceward.operations.function import Function

    from .client import DjangoOnce

MARKED = (
    "Django has marked this transaction for rollback, because a database error was caught in it or set_rollback(True) "
    "was called. The work in this block is undone. Wrap statements that may fail in transaction.atomic()"
)


class DjangoWithin(Within):
    """A transaction of Django. If Django is going to roll it back, leaving the block raises."""

    def __init__(self, once: DjangoOnce, connection: Any) -> None:
        super().__init__(once, connection)
        self._connection = connection
        self._has_run = False

    def outcome(self, key: Any, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]:
        """Like `run`, but return the `Outcome`."""
        self._has_run = True
        return super().outcome(key, fn, *args, **kwargs)

    def call(self, fn: Function[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a decorated function, with its own key and options, in this transaction."""
        self._has_run = True
        return super().call(fn, *args, **kwargs)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and self._has_run and self._connection.needs_rollback:
            failure = transaction.TransactionManagementError(MARKED)
            super().__exit__(type(failure), failure, None)
            raise failure
        super().__exit__(kind, error, trace)


class Atomic:
    """`transaction.atomic()` on the database of the records, and `within` in it."""

    def __init__(self, once: DjangoOnce, *, durable: bool) -> None:
        self._once = once
        self._durable = durable

    def __enter__(self) -> DjangoWithin:
        alias = configuration().database
        run(self._once.engine.ready())  # before the transaction begins, which may block it
        self._atomic: Any = transaction.atomic(using=alias, durable=self._durable)
        self._atomic.__enter__()
        try:
            self._within = self._once.within(connections[alias])
            return self._within.__enter__()
        except BaseException as error:
            self._atomic.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._within.__exit__(kind, error, trace)
        except BaseException as failure:
            self._atomic.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._atomic.__exit__(kind, error, trace)
