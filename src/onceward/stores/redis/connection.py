"""Connections for threads: each is used by one call at a time and kept for the next one.

They are redis-py's connections. Its client and its pool are not used: they would double the cost of a call.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import deque
from typing import Any, Final

import redis
import redis.connection

from onceward.errors import StoreUnavailable

from . import errors as faults
from .address import RedisAddress
from .errors import ConnectionLost
from .transport import RedisTransport, Reply, abandon

MAX_CONNECTIONS: Final = 16
"""Per store. Most calls of threads share a batch; the connections are for everything else."""

TOLERANCE: Final = 0.1
"""If a call's timeout differs by less than this fraction, the connection's timeout is used: changing it takes time."""

MIN_TIMEOUT: Final = 0.001  # seconds: no time left is a timeout, and not an endless wait
POLL_INTERVAL: Final = 0.005  # seconds between checks for an idle connection


class RedisConnection:
    """One connection."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        self._name = address.name
        self._connection: Any = address.connection(redis.connection, connect_timeout=timeout, read_timeout=timeout)
        self._timeout = timeout
        self._tolerance = timeout * TOLERANCE
        self._used = False

    def connect(self) -> None:
        """Connect within the timeout. redis-py would wait that long for each reply to AUTH, SELECT and so on."""
        connection, timeout = self._connection, self._timeout
        deadline = time.monotonic() + timeout
        read_response = connection.read_response

        def read_in_time(**options: Any) -> Any:
            if not connection.can_read(max(deadline - time.monotonic(), MIN_TIMEOUT)):
                raise redis.TimeoutError(f"not connected within {timeout:.3g} s")
            return read_response(**options)

        connection.read_response = read_in_time
        try:
            connection.connect()
        except BaseException:
            self.close()
            raise
        finally:
            del connection.read_response

    def exchange(self, payload: bytes, timeout: float) -> Reply:
        """Send a command and wait for its reply."""
        connection = self._connection
        try:
            connection.send_packed_command([payload], check_health=False)
            if abs(timeout - self._timeout) > self._tolerance and not connection.can_read(timeout):  # 3 system calls
                raise faults.timeout_error(self._name, timeout)
            reply = connection.read_response(disable_decoding=True)
        except faults.ERROR_REPLIES:
            raise
        except redis.TimeoutError as error:
            raise faults.timeout_error(self._name, timeout) from error
        except (redis.RedisError, OSError) as error:
            raise ConnectionLost(str(error), stale=self._used) from error
        self._used = True
        return reply

    def close(self) -> None:
        with contextlib.suppress(Exception):  # the connection is no longer used
            self._connection.disconnect()


class ThreadTransport(RedisTransport):
    """Sends calls from threads. Reuses the last used connection first, so that a single caller keeps using the same."""

    def __init__(self, address: RedisAddress) -> None:
        super().__init__(address)
        self._reset()

    def _reset(self) -> None:
        self._idle: deque[RedisConnection] = deque()
        self._counted: weakref.WeakSet[RedisConnection] = weakref.WeakSet()  # not those that an interrupt dropped
        self._lock = threading.RLock()  # reentrant: a signal handler may call while its thread connects

    async def _exchange(self, payload: bytes, timeout: float) -> Reply:
        try:
            connection = self._idle.pop()
        except IndexError:
            deadline = time.monotonic() + timeout
            connection = self._new_connection(timeout)
            timeout = max(deadline - time.monotonic(), MIN_TIMEOUT)
        try:
            reply = connection.exchange(payload, timeout)
        except redis.ResponseError:  # the reply was read
            self._idle.append(connection)
            raise
        except BaseException:  # also one raised by a signal handler
            self._close(connection)
            raise
        self._idle.append(connection)
        return reply

    def _new_connection(self, timeout: float) -> RedisConnection:
        deadline = time.monotonic() + timeout
        while (connection := self._count_one(timeout)) is None:
            with contextlib.suppress(IndexError):
                return self._idle.pop()
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"{self._address.name}: {MAX_CONNECTIONS} connections were busy for {timeout:.3g} s"
                )
            time.sleep(min(POLL_INTERVAL, timeout))
        try:
            connection.connect()
        except BaseException as error:
            self._close(connection)
            if isinstance(error, redis.RedisError | OSError):
                self._log.lost(error)
                raise faults.connect_error(error, self._address.name, timeout) from error
            raise
        self._log.restored()
        return connection

    def _count_one(self, timeout: float) -> RedisConnection | None:
        """Return a connection that is not yet connected, or None if there are enough."""
        with self._lock:
            if len(self._counted) >= MAX_CONNECTIONS:
                return None
            connection = RedisConnection(self._address, timeout)
            self._counted.add(connection)
            return connection

    def _close(self, connection: RedisConnection) -> None:
        connection.close()
        self._counted.discard(connection)

    async def drop(self) -> None:
        while True:
            try:
                self._close(self._idle.pop())
            except IndexError:
                return

    async def close(self) -> None:
        await self.drop()

    def after_fork_in_child(self) -> None:
        abandon(self._idle)
        self._reset()
