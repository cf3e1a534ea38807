"""A small connection pool. Lost connections are replaced automatically; a forked child inherits none.

Why not psycopg_pool: it opens connections in background tasks, with a timeout of their own. `asyncio.run` cancels
those tasks when it ends, so a result that was on its way could no longer be stored; and one connection attempt that
got no answer delayed all others, the heartbeat's too, until leases expired. Here each call connects by itself, within
its own deadline, and threads and event loops share the connections. With 64 tasks it takes 0.57
of the time of psycopg_pool to take and return a connection (`python -m bench --only "postgres pool"`).
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from contextlib import suppress

from onceward.errors import StoreNotSetUp, StoreUnavailable
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.runtime import Gate, Runtime

from .connection import PostgresConnection
from .errors import PostgresRefused, explain, explain_connect_error

logger = logging.getLogger("onceward.postgres")

SESSION_SETTINGS = (
    "SET jit = off",  # our plans are never worth compiling
    "SET plan_cache_mode = force_generic_plan",  # planning costs ten times as much as the statement itself
    "SET enable_seqscan = off",  # a plan that was made for an empty table would stay in use when the table grows
)
DETECT_DISCONNECT = "SET client_connection_check_interval = 1000"
"""In ms: the server soon cancels a statement whose client has disconnected. Not every platform supports it."""

VERSION_14 = 140_000

GROW_PAUSE = 10.0
"""Seconds for which the pool does not grow after the server has refused another connection."""


HAND_OVER_AFTER = 0.05
"""Seconds after which a waiting call no longer lets other calls take a connection before it."""


class PoolSlot:
    """Stands for one connection of the pool. It counts as long as the object exists, in use or idle."""

    __slots__ = ("__weakref__",)


class Waiter:
    """A call that waits for a connection."""

    __slots__ = ("connection", "gate", "since")

    def __init__(self, gate: Gate, since: float) -> None:
        self.gate = gate
        self.since = since
        self.connection: PostgresConnection | None = None
        """The connection that another call handed over."""


class Pool:
    """At most `size` connections.

    A call that returns a connection wakes the first waiting call. It may take the connection again before that call has
    woken up, which is fast, but unfair. So once a call has waited for HAND_OVER_AFTER, it is handed the connection.

    Connections are counted by weak references to their slots. If an interrupt makes a call drop its connection, the
    slot disappears and no longer counts.
    """

    def __init__(self, conninfo: str, name: str, size: int, *, prepares: bool | None) -> None:
        self._conninfo = conninfo.encode()
        self._name = name
        self._size = size
        self.prepares = prepares
        """None: not yet known whether there is a pooler."""
        self._closed = True
        self._outage_logged = False
        self._has_connected = False  # once connected, a later refusal is an outage and not a wrong URL
        self.reset_after_fork()
        _pools.add(self)

    def reset_after_fork(self) -> None:
        """Drop all connections in a forked child. They belong to the parent, so libpq must not terminate them."""
        self._idle: list[PostgresConnection] = []
        self._slots: weakref.WeakSet[PoolSlot] = weakref.WeakSet()
        self.waiting: deque[Waiter] = deque()  # the first has waited longest
        self._refused_until = 0.0
        self._lock = threading.RLock()  # reentrant for signal handlers, which never see a half-done change

    async def acquire(self, runtime: Runtime, deadline: float) -> PostgresConnection:
        waits_since = None
        while True:
            connection, slot, waiter = self._take_or_wait(runtime, waits_since)
            if waiter is not None:
                waits_since = waiter.since
                connection = await self._wait_for_connection(waiter, deadline)
            elif slot is not None:
                connection = await self._connect_slot(slot, runtime, deadline)
            if connection is not None and connection.is_alive():
                connection.runtime = runtime
                return connection
            if connection is not None:
                self._drop(connection)

    def _take_or_wait(
        self, runtime: Runtime, waits_since: float | None
    ) -> tuple[PostgresConnection | None, PoolSlot | None, Waiter | None]:
        """Return an idle connection, or a slot for a new one, or a waiter. A call that has waited is the next again."""
        with self._lock:
            if self._closed:
                raise StoreUnavailable(f"{self._name} is not open", hint="open the store before you use it")
            if self._idle:
                return self._idle.pop(), None, None
            if self._may_grow():
                slot = PoolSlot()
                self._slots.add(slot)
                return None, slot, None
            if waits_since is None:
                waiter = Waiter(runtime.gate(), time.monotonic())
                self.waiting.append(waiter)
            else:
                waiter = Waiter(runtime.gate(), waits_since)
                self.waiting.appendleft(waiter)
            return None, None, waiter

    async def _connect_slot(self, slot: PoolSlot, runtime: Runtime, deadline: float) -> PostgresConnection | None:
        """Connect. None: the server refused one more connection, so wait for one of the others."""
        try:
            connection = await self._connect(runtime, deadline)
        except BaseException as error:
            self._free_slot(slot)
            if self._slots and isinstance(error, StoreUnavailable):  # the server may have no connection left
                self._refused_until = time.monotonic() + GROW_PAUSE
                return None
            raise
        connection.slot = slot
        return connection

    def _may_grow(self) -> bool:
        """Return whether a connection may be added: below the limit, and not just refused by the server."""
        if not self._slots:
            return True
        return len(self._slots) < self._size and time.monotonic() >= self._refused_until

    async def _wait_for_connection(self, waiter: Waiter, deadline: float) -> PostgresConnection | None:
        """Wait to be woken, and return the connection that was handed over, if any."""
        remaining = deadline - time.monotonic()
        try:
            if remaining > 0:
                await waiter.gate.wait(remaining)
        except BaseException:
            self._stop_waiting(waiter)
            if waiter.connection is not None:
                self.release(waiter.connection)
            raise
        self._stop_waiting(waiter)
        if waiter.connection is None and time.monotonic() >= deadline:
            raise StoreUnavailable(f"{self._name}: other calls of this process kept its connections busy for too long")
        return waiter.connection

    def _stop_waiting(self, waiter: Waiter) -> None:
        with self._lock, suppress(ValueError):
            self.waiting.remove(waiter)

    def release(self, connection: PostgresConnection) -> None:
        """Return the connection to the pool, and wake the first call that waits for one.

        The connection is closed if it was left in the middle of an exchange.
        """
        keep, waiter = connection.is_idle(), None
        with self._lock:
            keep = keep and not self._closed
            if keep:
                waiter = self.waiting.popleft() if self.waiting else None
                if waiter is not None and time.monotonic() - waiter.since >= HAND_OVER_AFTER:
                    waiter.connection = connection
                else:
                    self._idle.append(connection)
        if waiter is not None:
            waiter.gate.open()
        elif not keep:
            if connection.lost:
                self._log_outage(connection.lost)
            connection.close()
            self._free_slot(connection.slot)

    def _free_slot(self, slot: object) -> None:
        """Count one connection less."""
        with self._lock:
            if isinstance(slot, PoolSlot):
                self._slots.discard(slot)
        self._wake_next()

    def _wake_next(self) -> None:
        """Let the next waiting call try again."""
        with self._lock:
            waiter = self.waiting.popleft() if self.waiting else None
        if waiter is not None:
            waiter.gate.open()

    def open(self) -> None:
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    async def _connect(self, runtime: Runtime, deadline: float) -> PostgresConnection:
        try:
            connection = await PostgresConnection.connect(self._conninfo, runtime, self._name, deadline)
        except StoreUnavailable as error:
            explained = error if self._has_connected else explain_connect_error(error, self._name)
            if explained is error:
                self._log_outage(error)
                raise
            raise explained from error
        self._has_connected = True
        try:
            await self._configure(connection, deadline)
        except PostgresRefused as error:
            connection.close()
            raise explain(error, self._name) from error
        except BaseException:
            connection.close()
            raise
        if self._outage_logged:
            self._outage_logged = False
            logger.warning("%s: connected again", self._name)
        return connection

    async def _configure(self, connection: PostgresConnection, deadline: float) -> None:
        """Check the encoding and set the session's settings.

        A pooler reports a made-up process id. Then no state may be left on the server connection.
        """
        statement = "SELECT pg_backend_pid(), current_setting('server_encoding')"
        [(pid, encoding)] = await connection.query(statement, deadline)
        if encoding != "UTF8":
            raise StoreNotSetUp(
                f"{self._name}: the database has the encoding {encoding}", hint="Onceward needs a UTF8 database"
            )
        direct = pid == connection.pgconn.backend_pid
        connection.prepares = direct if self.prepares is None else self.prepares
        if direct:
            await connection.command("; ".join(SESSION_SETTINGS), deadline)
            if connection.pgconn.server_version >= VERSION_14:
                with suppress(PostgresRefused):
                    await connection.command(DETECT_DISCONNECT, deadline)

    def _drop(self, connection: PostgresConnection) -> None:
        self._log_outage(connection.lost)
        connection.close()
        self._free_slot(connection.slot)

    def _log_outage(self, reason: object) -> None:
        """Log a warning once per outage."""
        if not self._outage_logged:
            self._outage_logged = True
            message = "connection lost, will reconnect" if self._has_connected else "cannot connect yet, will retry"
            logger.warning("%s: %s: %s", self._name, message, reason)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _reset_all_after_fork() -> None:
    for pool in tuple(_pools):
        pool.reset_after_fork()


call_in_forked_child(_reset_all_after_fork)
