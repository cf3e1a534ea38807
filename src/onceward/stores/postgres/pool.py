"""A small connection pool. Lost connections are replaced automatically; a forked child inherits none.

Why not psycopg_pool: it opens connections in background tasks, with a timeout of their own. `asyncio.run` cancels
those tasks when it ends, so a result that was on its way could no longer be stored; and one connection attempt that
got no answer delayed all others, the heartbeat's too, until leases expired. Here each call connects by itself, within
its own deadline, and threads and event loops share the connections. With 64 tasks it takes half
the time of psycopg_pool to take and return a connection (`python -m bench --only "postgres pool"`).
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


class PoolSlot:
    """Stands for one connection of the pool. It counts as long as the object exists, in use or idle."""

    __slots__ = ("__weakref__",)


class Pool:
    """At most `size` connections.

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
        self._waiting: deque[Gate] = deque()
        self._refused_until = 0.0
        self._lock = threading.RLock()  # reentrant for signal handlers, which never see a half-done change

    async def acquire(self, runtime: Runtime, deadline: float) -> PostgresConnection:
        while True:
            slot = gate = None
            with self._lock:
                if self._closed:
                    raise StoreUnavailable(f"{self._name} is not open", hint="open the store before you use it")
                connection = self._idle.pop() if self._idle else None
                if connection is None and self._may_grow():
                    slot = PoolSlot()
                    self._slots.add(slot)
                elif connection is None:
                    gate = runtime.gate()
                    self._waiting.append(gate)
            if gate is not None:
                await self._wait_for_connection(gate, deadline)
                continue
            if connection is None:
                try:
                    connection = await self._connect(runtime, deadline)
                except BaseException as error:
                    self._free_slot(slot)
                    if self._slots and isinstance(error, StoreUnavailable):  # the server may have no connection left
                        self._refused_until = time.monotonic() + GROW_PAUSE
                        continue
                    raise
                connection.slot = slot
            elif not connection.is_alive():
                self._drop(connection)
                continue
            connection.runtime = runtime
            return connection

    def _may_grow(self) -> bool:
        """Return whether a connection may be added: below the limit, and not just refused by the server."""
        if not self._slots:
            return True
        return len(self._slots) < self._size and time.monotonic() >= self._refused_until

    async def _wait_for_connection(self, gate: Gate, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        try:
            if remaining > 0:
                await gate.wait(remaining)
        finally:
            with suppress(ValueError):
                self._waiting.remove(gate)
        if time.monotonic() >= deadline:
            raise StoreUnavailable(f"{self._name}: other calls of this process kept its connections busy for too long")

    def release(self, connection: PostgresConnection) -> None:
        """Return the connection to the pool. It is closed if it was left in the middle of an exchange."""
        keep = connection.is_idle()
        with self._lock:
            keep = keep and not self._closed
            if keep:
                self._idle.append(connection)
        if not keep:
            if connection.lost:
                self._log_outage(connection.lost)
            connection.close()
            self._free_slot(connection.slot)
        elif self._waiting:
            self._wake_next()

    def _free_slot(self, slot: object) -> None:
        """Count one connection less."""
        with self._lock:
            if isinstance(slot, PoolSlot):
                self._slots.discard(slot)
        self._wake_next()

    def _wake_next(self) -> None:
        """Let the next waiting call try again."""
        with self._lock:
            gate = self._waiting.popleft() if self._waiting else None
        if gate is not None:
            gate.open()

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
