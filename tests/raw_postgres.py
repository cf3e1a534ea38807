"""What a PostgresStore keeps inside, for tests that replace its statements or look at its connections.

The only place that knows where the store keeps it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from onceward.stores.postgres import PostgresStore
from onceward.stores.postgres.connection import PostgresConnection
from onceward.stores.postgres.pool import Pool
from onceward.stores.postgres.statements import Statements
from onceward.stores.postgres.table import PostgresTable


def use_table(
    store: PostgresStore, kind: type[PostgresTable], change: Callable[[Statements], Statements] = lambda same: same
) -> None:
    """Let the store use a table of this kind, with changed statements."""
    table = store._table
    store._table = kind(change(table.statements), table._salt)


def pool_of(store: PostgresStore) -> Pool:
    return store._pool


def connections_of(store: PostgresStore) -> tuple[PostgresConnection, ...]:
    """Return the idle connections of the store."""
    return tuple(pool_of(store)._idle)


def waits_for(pool: Pool) -> float:
    """Return for how many seconds the first waiting call has waited for a connection; 0 if none waits."""
    waiting = tuple(pool.waiting)
    return time.monotonic() - waiting[0].since if waiting else 0.0


def lock_first(store: Any, batches: int) -> None:
    """Let this number of batches lock their entities first, as after a race."""
    store._lock_first_batches = batches


def batches_that_lock_first(store: Any) -> int:
    """Return how many of the next batches lock their entities first."""
    return int(store._lock_first_batches)
