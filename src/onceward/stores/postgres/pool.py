"""The connections of a store: a pool for its threads, and one for each event loop, because asyncio's objects need that.

A call fails as soon as no connection can be opened. An outage is logged once. A forked child inherits no connection.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from typing import Final

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout

from onceward.errors import StoreError, StoreUnavailable
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.runtime import Runtime

from .connection import PostgresConnection
from .driver_pool import DriverPool
from .errors import PostgresRefused, explain, explain_connect_error

logger = logging.getLogger("onceward.postgres")

POLL_INTERVAL: Final = 0.05
"""Seconds after which a waiting call checks whether connecting has failed: psycopg's pool does not tell it."""

Pools = dict[asyncio.AbstractEventLoop | None, DriverPool]


class Pool:
    """Hands out connections to calls. At most `size` for the threads, and as many for each event loop."""

    def __init__(self, conninfo: str, name: str, size: int, *, prepares: bool | None) -> None:
        self._conninfo = conninfo
        self._name = name
        self._size = size
        self.prepares = prepares
        """None: not yet known whether there is a pooler."""
        self._closed = True
        self._outage_logged = False
        self._has_connected = False  # once connected, a later refusal is an outage and not a wrong URL
        self._pools: Pools = {}
        self._lock = threading.Lock()
        _instances.add(self)

    def reset_after_fork(self) -> None:
        """Start without connections in a forked child. Keep the parent's pools: deleting one stops its threads."""
        _inherited.append(self._pools)
        self._pools = {}
        self._lock = threading.Lock()

    def open(self) -> None:
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        with self._lock:
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    async def acquire(self, runtime: Runtime, deadline: float) -> PostgresConnection:
        started = time.monotonic()
        while True:
            if self._closed:
                raise StoreUnavailable(f"{self._name} is not open", hint="open the store before you use it")
            pool = self._pool_for(runtime)
            try:
                await pool.open()
                connection = await pool.get(min(POLL_INTERVAL, deadline - time.monotonic()))
            except PoolTimeout:
                self._check_waiting(pool, started, deadline)
                continue
            except PoolClosed:
                continue  # the store was closed meanwhile
            if connection.is_alive():
                return connection
            await self.release(connection)

    def _check_waiting(self, pool: DriverPool, started: float, deadline: float) -> None:
        """Raise if a call that has been waiting for a connection since `started` will not get one."""
        connects = not pool.open_connections()
        if connects and pool.error is not None and pool.failed_at >= started:
            raise self._explain(pool.error) from pool.error
        if time.monotonic() >= deadline:
            reason = "no connection" if connects else "other calls of this process kept its connections busy"
            raise StoreUnavailable(f"{self._name}: {reason} until the timeout of this call")

    async def release(self, connection: PostgresConnection) -> None:
        """Return the connection to its pool. It is closed if it was left in the middle of an exchange."""
        if connection.lost:
            self._log_outage(connection.lost)
        if not connection.is_idle() or self._closed:
            connection.close()
        await connection.pool.put(connection)

    def _pool_for(self, runtime: Runtime) -> DriverPool:
        loop = asyncio.get_running_loop() if runtime.supports_cancellation else None
        pool = self._pools.get(loop)
        if pool is None:
            with self._lock:
                self._forget_closed_loops()
                pool = self._pools.get(loop)
                if pool is None:
                    pool = self._pools[loop] = DriverPool(
                        self._conninfo,
                        self._name,
                        runtime,
                        self._size,
                        prepares=self.prepares,
                        on_connect=self._on_connect,
                    )
        return pool

    def _forget_closed_loops(self) -> None:
        for loop, pool in tuple(self._pools.items()):
            if pool.has_lost_its_loop():
                del self._pools[loop]
                pool.abandon()

    # ── outages ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_connect(self, error: Exception | None) -> None:
        if error is None:
            self._has_connected = True
            if self._outage_logged:
                self._outage_logged = False
                logger.warning("%s: connected again", self._name)
        elif isinstance(error, psycopg.Error | StoreError | PostgresRefused):
            explained = self._explain(error)
            if isinstance(explained, StoreUnavailable):
                self._log_outage(explained)

    def _log_outage(self, reason: object) -> None:
        """Log a warning once per outage."""
        if not self._outage_logged:
            self._outage_logged = True
            message = "connection lost, will reconnect" if self._has_connected else "cannot connect yet, will retry"
            logger.warning("%s: %s: %s", self._name, message, reason)

    def _explain(self, error: Exception) -> StoreError:
        """Return our error for a connection that could not be opened or set up."""
        if isinstance(error, StoreError):
            return type(error)(str(error))  # a new one: several calls may raise it
        if isinstance(error, PostgresRefused):
            return explain(error, self._name)
        unavailable = StoreUnavailable(
            f"{self._name}: cannot connect: {str(error).strip()}", hint="is the server running, and is the URL correct?"
        )
        return unavailable if self._has_connected else explain_connect_error(unavailable, self._name)


_instances: weakref.WeakSet[Pool] = weakref.WeakSet()
_inherited: list[Pools] = []


def _reset_all_after_fork() -> None:
    for pool in tuple(_instances):
        pool.reset_after_fork()


call_in_forked_child(_reset_all_after_fork)
