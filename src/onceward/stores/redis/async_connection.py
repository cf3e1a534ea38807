"""Connections for event loops: each is used by one call at a time and kept for the next one.

They are redis-py's connections. Its client and its pool are not used: they would double the cost of a call. Several
batches are in flight at the same time, each on its own connection, so that no reply can reach the wrong batch.
Only the async client imports this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator
from typing import Any, Final

import redis
import redis.asyncio.connection

from . import errors as faults
from .address import RedisAddress
from .errors import ConnectionLost
from .transport import ConnectionLog, RedisTransport, Reply, abandon

MAX_CONNECTIONS: Final = 8
"""Per store and event loop. Most calls share a batch, and two batches are in flight; the others are for the rest."""


class LoopConnections:
    """The connections of one event loop. Reuses the last used one first."""

    def __init__(self, address: RedisAddress, log: ConnectionLog) -> None:
        self._address = address
        self._log = log
        self._idle: list[Any] = []  # connections of redis-py
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._closer = self._close_with_loop()
        self._closer_started = False
        self._closed = False

    async def exchange(self, payload: bytes, timeout: float) -> Reply:
        """Send a command and wait for its reply."""
        try:
            async with asyncio.timeout(timeout), self._room:
                was_idle, is_usable = bool(self._idle), False
                connection = self._idle.pop() if was_idle else await self._new_connection(timeout)
                try:
                    await connection.send_packed_command([payload], check_health=False)
                    reply = await connection.read_response(disable_decoding=True)
                    is_usable = not self._closed
                except faults.ERROR_REPLIES as error:
                    is_usable = isinstance(error, redis.ResponseError) and not self._closed  # the reply was read
                    raise
                except (redis.RedisError, OSError) as error:
                    raise ConnectionLost(str(error), stale=was_idle) from error
                finally:
                    if is_usable:
                        self._idle.append(connection)
                    else:  # also after a cancellation: its reply is still to come
                        await _close(connection)
                return reply
        except TimeoutError as error:
            raise faults.timeout_error(self._address.name, timeout) from error

    async def _new_connection(self, timeout: float) -> Any:
        connection = self._address.connection(redis.asyncio.connection, connect_timeout=timeout)
        try:
            await connection.connect()
        except BaseException as error:
            await _close(connection)
            if isinstance(error, redis.RedisError | OSError):
                self._log.lost(error)
                raise faults.connect_error(error, self._address.name, timeout) from error
            raise
        self._log.restored()
        if not self._closer_started:
            self._closer_started = True
            await anext(self._closer)
        return connection

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        """Close idle connections when the loop shuts down: then asyncio closes all generators that are still open."""
        try:
            yield
        finally:
            await self.drop()

    async def drop(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await _close(connection)

    async def close(self) -> None:
        """Close idle connections now, and those in use after their call."""
        self._closed = True
        await self.drop()
        await self._closer.aclose()


async def _close(connection: Any) -> None:
    with contextlib.suppress(Exception):  # the connection is no longer used
        await connection.disconnect(nowait=True)


class AsyncTransport(RedisTransport):
    """Sends calls from event loops. Several loops may share a client: each has its own connections."""

    def __init__(self, address: RedisAddress) -> None:
        super().__init__(address)
        self._reset()

    def _reset(self) -> None:
        self._loops: weakref.WeakKeyDictionary[AbstractEventLoop, LoopConnections] = weakref.WeakKeyDictionary()

    async def _exchange(self, payload: bytes, timeout: float) -> Reply:
        loop = asyncio.get_running_loop()
        connections = self._loops.get(loop)
        if connections is None:
            self._forget_closed_loops()
            connections = self._loops[loop] = LoopConnections(self._address, self._log)
        return await connections.exchange(payload, timeout)

    def _forget_closed_loops(self) -> None:
        for loop in tuple(self._loops):
            if loop.is_closed():
                self._loops.pop(loop, None)

    async def drop(self) -> None:
        connections = self._loops.get(asyncio.get_running_loop())
        if connections is not None:
            await connections.drop()

    async def close(self) -> None:
        """Close the connections of all loops. May be called outside a loop, for example by a sync client."""
        current_loop = _running_loop()
        for loop, connections in tuple(self._loops.items()):
            if loop is current_loop:
                await connections.close()
            elif not loop.is_closed():
                with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime
                    loop.call_soon_threadsafe(_close_soon, connections)
        self._loops.clear()

    def after_fork_in_child(self) -> None:
        abandon(self._loops)
        self._reset()


_closing: set[asyncio.Future[None]] = set()  # a loop refers to its tasks weakly


def _close_soon(connections: LoopConnections) -> None:
    task = asyncio.ensure_future(connections.close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)


def _running_loop() -> AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
