"""Connections for threads: each is used by one call at a time and kept for the next one.

redis-py connects (TLS, credentials, database). After that this module uses its socket directly, which halves the cost
of a call. A connection is discarded after any error, and in a forked child.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import weakref
from collections import deque
from typing import Any, Final

import redis
import redis.connection

from onceward.errors import StoreUnavailable
from onceward.protocol.fork import call_in_forked_child

from . import errors as faults
from .address import RedisAddress
from .errors import ConnectionLost
from .resp import ProtocolError, Reply, ReplyParser, parse_single_text

CHUNK: Final = 1 << 16
MAX_CONNECTIONS: Final = 16
"""Per store. Most calls of threads share a batch; the connections are for everything else."""
POLL_INTERVAL: Final = 0.005  # seconds between checks for an idle connection

logger = logging.getLogger("onceward.redis")


class ConnectionLog:
    """Logs once that a connection was lost, and once that it was restored."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_lost = False
        self._was_connected = False

    def lost(self, error: BaseException) -> None:
        if self._was_connected and not self._is_lost:  # if it never connected, only the caller gets the error
            self._is_lost = True
            why = str(error) or type(error).__name__
            logger.warning("%s: the connection is lost (%s); the next calls reconnect", self._name, why)

    def restored(self) -> None:
        self._was_connected = True
        if self._is_lost:
            self._is_lost = False
            logger.warning("%s: connected again", self._name)


class RedisConnection:
    """One connection."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        self._name = address.name
        self._connection = address.connection(redis.connection, timeout)
        self._connection.connect()
        self._socket = self._connection._sock  # noqa: SLF001 (redis-py's own parser costs as much as everything else together)
        self._timeout = -1.0
        self._used = False

    def exchange(self, payload: bytes, timeout: float) -> Reply:
        """Send a command and wait for its reply."""
        connected = self._socket
        deadline = time.monotonic() + timeout
        if timeout != self._timeout:
            connected.settimeout(timeout)
            self._timeout = timeout
        try:
            connected.sendall(payload)
            data = connected.recv(CHUNK)
            whole = parse_single_text(data)
            if whole is not None:
                self._used = True
                return whole
            replies = ReplyParser()
            while data:
                complete = replies.feed(data)
                if complete:
                    self._used = True
                    return complete[0]
                connected.settimeout(max(deadline - time.monotonic(), 0.001))
                self._timeout = -1.0
                data = connected.recv(CHUNK)
        except TimeoutError as error:
            raise faults.timeout_error(self._name, timeout) from error
        except (OSError, ProtocolError) as error:
            raise ConnectionLost(str(error), stale=self._used) from error
        raise ConnectionLost("the server closed it", stale=self._used)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # the connection is no longer used
            self._connection.disconnect()


class SocketTransport:
    """Sends calls from threads. Reuses the last used connection first, so that a single caller keeps using the same."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._log = ConnectionLog(address.name)
        self._reset()
        _fork_handlers[next(_numbers)] = self

    def _reset(self) -> None:
        self._idle: deque[RedisConnection] = deque()
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)

    async def call(self, payload: bytes, timeout: float, *, retryable: bool) -> Reply:
        """Send a command and return the reply. `retryable`: send it again if an idle connection was closed."""
        deadline = time.monotonic() + timeout
        try:
            return self._exchange(payload, timeout)
        except ConnectionLost as error:
            self._log.lost(error)
            left = deadline - time.monotonic()
            if not (retryable and error.stale) or left <= 0:
                raise faults.connection_lost_error(error, self._address.name) from error
        self.drop()  # the other idle connections are probably closed, too
        try:
            return self._exchange(payload, left)
        except ConnectionLost as error:
            raise faults.connection_lost_error(error, self._address.name) from error

    def _exchange(self, payload: bytes, timeout: float) -> Reply:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._new_connection(timeout)
        try:
            reply = connection.exchange(payload, timeout)
        except BaseException:  # also one raised by a signal handler: the next reply may belong to this call
            self._close(connection)
            raise
        self._idle.append(connection)
        return reply

    def _new_connection(self, timeout: float) -> RedisConnection:
        deadline = time.monotonic() + timeout
        while not self._room.acquire(timeout=min(POLL_INTERVAL, timeout)):
            with contextlib.suppress(IndexError):
                return self._idle.pop()
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"{self._address.name}: {MAX_CONNECTIONS} connections were busy for {timeout:.3g} s"
                )
        try:
            connection = RedisConnection(self._address, timeout)
        except BaseException as error:
            self._room.release()
            if isinstance(error, redis.RedisError | OSError):
                self._log.lost(error)
                raise faults.connect_error(error, self._address.name, timeout) from error
            raise
        self._log.restored()
        return connection

    def _close(self, connection: RedisConnection) -> None:
        connection.close()
        with contextlib.suppress(ValueError):  # it was acquired before a fork
            self._room.release()

    def drop(self) -> None:
        """Close idle connections, so that the next calls reconnect."""
        while True:
            try:
                self._close(self._idle.pop())
            except IndexError:
                return

    async def close(self) -> None:
        self.drop()

    def after_fork_in_child(self) -> None:
        """Do not use the parent's connections: two processes on one would receive each other's replies."""
        _abandoned.extend(self._idle)
        self._reset()


_fork_handlers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_abandoned: list[Any] = []  # kept alive, so that their finalizers send nothing to the server


def register_for_fork(handler: Any) -> None:
    """Call `handler.after_fork_in_child()` in every forked child, for as long as the handler lives."""
    _fork_handlers[next(_numbers)] = handler


def _after_fork_in_child() -> None:
    for handler in tuple(_fork_handlers.values()):
        handler.after_fork_in_child()


call_in_forked_child(_after_fork_in_child)
