"""One of psycopg's connection pools, for threads or for one event loop, with Onceward's connections in it.

psycopg's pool opens, counts, hands out, replaces and retires connections. It does not tell waiting callers why a
connection could not be opened, so the last error is kept here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
import psycopg_pool

from onceward.errors import StoreNotSetUp
from onceward.protocol.runtime import Runtime

from .connection import PostgresConnection
from .errors import PostgresRefused

SESSION_SETTINGS: Final = (
    "SET jit = off",  # our plans are never worth compiling
    "SET plan_cache_mode = force_generic_plan",  # planning costs ten times as much as the statement itself
    "SET enable_seqscan = off",  # a plan that was made for an empty table would stay in use when the table grows
)
DETECT_DISCONNECT: Final = "SET client_connection_check_interval = 1000"
"""In ms: the server soon cancels a statement whose client has disconnected. Not every platform supports it."""

VERSION_14: Final = 140_000
SET_UP_TIMEOUT: Final = 5.0  # seconds for the first statements on a connection
CLOSE_TIMEOUT: Final = 1.0  # seconds to wait for the pool's worker, which may be waiting for a server that is down

GROW_PAUSE: Final = 10.0
"""Seconds for which the pool does not grow after the server has refused another connection."""

NAME: Final = "onceward"
"""The name of our pools in psycopg's messages."""


class SyncDriverConnection(psycopg.Connection[Any]):
    """A connection in a pool for threads."""

    ours: PostgresConnection

    @classmethod
    def connect(cls, conninfo: str = "", *, pool: DriverPool, **settings: Any) -> SyncDriverConnection:  # type: ignore[override]
        with pool.watching_errors():
            connection = super().connect(conninfo, **settings)
            with suppress(StopIteration):  # the coroutine of a sync runtime never suspends
                pool.set_up(connection).send(None)
            return connection


class AsyncDriverConnection(psycopg.AsyncConnection[Any]):
    """A connection in a pool for an event loop."""

    ours: PostgresConnection

    @classmethod
    async def connect(cls, conninfo: str = "", *, pool: DriverPool, **settings: Any) -> AsyncDriverConnection:  # type: ignore[override]
        with pool.watching_errors():
            connection = await super().connect(conninfo, **settings)
            await pool.set_up(connection)
            return connection


class DriverPool:
    """At most `size` connections. `on_connect` is called with each connection, or with the error."""

    def __init__(
        self,
        conninfo: str,
        name: str,
        runtime: Runtime,
        size: int,
        *,
        prepares: bool | None,
        on_connect: Callable[[Exception | None], None],
    ) -> None:
        self.runtime = runtime
        self._name = name
        self._loop = asyncio.get_running_loop() if runtime.supports_cancellation else None
        self._size = size
        self._prepares = prepares
        self._on_connect = on_connect
        self._connections: tuple[PostgresConnection, ...] = ()  # replaced as a whole: other threads may read it
        self.error: Exception | None = None
        self.failed_at = 0.0
        settings: Any = {
            "kwargs": {"autocommit": True, "pool": self},
            "min_size": 0,
            "max_size": size,
            "open": False,
            "name": NAME,
            "num_workers": 1,
            "reconnect_timeout": 0,  # it does not retry in the background: the next call does
        }
        self._pool: Any
        if self._loop is None:
            self._pool = psycopg_pool.ConnectionPool(conninfo, connection_class=SyncDriverConnection, **settings)
        else:
            self._pool = psycopg_pool.AsyncConnectionPool(conninfo, connection_class=AsyncDriverConnection, **settings)

    async def open(self) -> None:
        """Open the pool. May be called several times."""
        if self._pool.closed:
            await self._result(self._pool.open())

    async def _result(self, called: Any) -> Any:
        """Return the result of a call of psycopg's pool, which is sync or async."""
        return called if self._loop is None else await called

    async def get(self, timeout: float) -> PostgresConnection:
        """Return a connection. Raise psycopg's PoolTimeout or PoolClosed."""
        await self._limit_growth()
        driver = await self._result(self._pool.getconn(timeout))
        return driver.ours  # type: ignore[no-any-return]

    async def put(self, connection: PostgresConnection) -> None:
        """Take a connection back. The pool replaces it if it is closed."""
        await self._result(self._pool.putconn(connection.driver))

    def open_connections(self) -> tuple[PostgresConnection, ...]:
        return tuple(one for one in self._connections if not one.is_closed())

    async def _limit_growth(self) -> None:
        """Keep the pool's size for a while after the server has refused another connection."""
        is_refused = time.monotonic() < self.failed_at + GROW_PAUSE
        limit = (len(self.open_connections()) or self._size) if is_refused else self._size
        if limit != self._pool.max_size:
            await self._result(self._pool.resize(0, limit))

    # ── new connections ─────────────────────────────────────────────────────────────────────────────────────────

    async def set_up(self, driver: SyncDriverConnection | AsyncDriverConnection) -> None:
        """Check the encoding and set the session's settings."""
        connection = driver.ours = PostgresConnection(driver.pgconn, self.runtime, self._name)
        connection.pool, connection.driver = self, driver
        try:
            await self._configure(connection, time.monotonic() + SET_UP_TIMEOUT)
        except BaseException:
            connection.close()
            raise
        self._connections = (*self.open_connections(), connection)
        self._on_connect(None)

    async def _configure(self, connection: PostgresConnection, deadline: float) -> None:
        """Configure the session, but not behind a pooler, where libpq and the server report different process ids."""
        statement = "SELECT pg_backend_pid(), current_setting('server_encoding')"
        [(pid, encoding)] = await connection.query(statement, deadline)
        if encoding != "UTF8":
            raise StoreNotSetUp(
                f"{self._name}: the database has the encoding {encoding}", hint="Onceward needs a UTF8 database"
            )
        is_direct = pid == connection.pgconn.backend_pid
        connection.prepares = is_direct if self._prepares is None else self._prepares
        if is_direct:
            await connection.command("; ".join(SESSION_SETTINGS), deadline)
            if connection.pgconn.server_version >= VERSION_14:
                with suppress(PostgresRefused):
                    await connection.command(DETECT_DISCONNECT, deadline)

    @contextmanager
    def watching_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.error, self.failed_at = error, time.monotonic()
            self._on_connect(error)
            raise

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────

    def has_lost_its_loop(self) -> bool:
        return self._loop is not None and self._loop.is_closed()

    async def close(self) -> None:
        """Close the pool and its idle connections. A connection in use is closed when it is put back."""
        with suppress(RuntimeError):  # no event loop is running here
            if self._loop is None or self._loop is asyncio.get_running_loop():
                await self._result(self._pool.close(CLOSE_TIMEOUT))
                return
        self.abandon()

    def abandon(self) -> None:
        """Close the idle connections of a pool whose event loop is not running here."""
        for connection in self._connections:
            if connection.is_idle():
                connection.close()


class OtherPools(logging.Filter):
    """Drops psycopg's messages about our pools: it logs every failed attempt, and we log an outage once."""

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        return not any(
            one == NAME or isinstance(one, SyncDriverConnection | AsyncDriverConnection) for one in arguments
        )


logging.getLogger("psycopg.pool").addFilter(OtherPools())
