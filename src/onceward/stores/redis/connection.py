"""Connections for the blocking world: each used by one call at a time, kept for the next one.

redis-py connects (TLS, credentials, database); after that we speak on its socket ourselves, because a call then costs
half. A connection on which anything went wrong is thrown away, and so is every one that a fork has brought along.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
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
from .errors import Cut
from .resp import Garbage, Replies, Reply, one_text

CHUNK: Final = 1 << 16
MOST: Final = 16
"""Connections of one store. Calls of threads go together anyway; these are for what goes besides."""
LOOK: Final = 0.005  # seconds between looks for a connection that has become free

logger = logging.getLogger("onceward.redis")


class ConnectionTrouble:
    """Tells people once that a server is gone, and once that it is back."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._gone = False
        self._known = False

    def gone(self, error: BaseException) -> None:
        if self._known and not self._gone:  # who was never there is not lost: the caller is told anyway
            self._gone = True
            why = str(error) or type(error).__name__
            logger.warning("%s: the connection is lost (%s); connecting anew with the next calls", self._name, why)

    def back(self) -> None:
        self._known = True
        if self._gone:
            self._gone = False
            logger.warning("%s: connected again", self._name)


class RedisConnection:
    """One connection."""

    def __init__(self, place: RedisAddress, seconds: float) -> None:
        self._name = place.name
        self._connection = place.connection(redis.connection, seconds)
        self._connection.connect()
        self._socket = self._connection._sock  # noqa: SLF001 (redis-py's own parser costs as much as all the rest)
        self._seconds = -1.0
        self._used = False

    def exchange(self, payload: bytes, seconds: float) -> Reply:
        """Send, and wait for the one reply."""
        connected = self._socket
        deadline = time.monotonic() + seconds
        if seconds != self._seconds:
            connected.settimeout(seconds)
            self._seconds = seconds
        try:
            connected.sendall(payload)
            data = connected.recv(CHUNK)
            whole = one_text(data)
            if whole is not None:
                self._used = True
                return whole
            replies = Replies()
            while data:
                complete = replies.feed(data)
                if complete:
                    self._used = True
                    return complete[0]
                connected.settimeout(max(deadline - time.monotonic(), 0.001))
                self._seconds = -1.0
                data = connected.recv(CHUNK)
        except TimeoutError as error:
            raise faults.late(self._name, seconds) from error
        except (OSError, Garbage) as error:
            raise Cut(str(error), stale=self._used) from error
        raise Cut("the server closed it", stale=self._used)

    def close(self) -> None:
        with contextlib.suppress(Exception):  # whatever it is, the connection is not used any more
            self._connection.disconnect()


class SocketTransport:
    """Calls of the blocking world. The last connection used is the first one used again: a lone caller has its own."""

    def __init__(self, place: RedisAddress) -> None:
        self._place = place
        self._trouble = ConnectionTrouble(place.name)
        self._reset()
        _wires[next(_numbers)] = self

    def _reset(self) -> None:
        self._idle: deque[RedisConnection] = deque()
        self._room = threading.BoundedSemaphore(MOST)

    async def call(self, payload: bytes, seconds: float, *, again: bool) -> Reply:
        """The server's reply. `again`: may be sent twice, if the connection had ended while it lay idle."""
        deadline = time.monotonic() + seconds
        try:
            return self._exchange(payload, seconds)
        except Cut as error:
            self._trouble.gone(error)
            left = deadline - time.monotonic()
            if not (again and error.stale) or left <= 0:
                raise faults.cut(error, self._place.name) from error
        self.drop()  # the others are of the same age
        try:
            return self._exchange(payload, left)
        except Cut as error:
            raise faults.cut(error, self._place.name) from error

    def _exchange(self, payload: bytes, seconds: float) -> Reply:
        try:
            link = self._idle.pop()
        except IndexError:
            link = self._another(seconds)
        try:
            reply = link.exchange(payload, seconds)
        except BaseException:  # a signal's too: nobody knows what the next reply on it would answer
            self._close(link)
            raise
        self._idle.append(link)
        return reply

    def _another(self, seconds: float) -> RedisConnection:
        deadline = time.monotonic() + seconds
        while not self._room.acquire(timeout=min(LOOK, seconds)):
            with contextlib.suppress(IndexError):
                return self._idle.pop()
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"{self._place.name}: {MOST} connections were busy for {seconds:.3g} s")
        try:
            link = RedisConnection(self._place, seconds)
        except BaseException as error:
            self._room.release()
            if isinstance(error, redis.RedisError | OSError):
                self._trouble.gone(error)
                raise faults.unreachable(error, self._place.name, seconds) from error
            raise
        self._trouble.back()
        return link

    def _close(self, link: RedisConnection) -> None:
        link.close()
        with contextlib.suppress(ValueError):  # it was counted before a fork
            self._room.release()

    def drop(self) -> None:
        """Close what is idle: the next calls connect anew."""
        while True:
            try:
                self._close(self._idle.pop())
            except IndexError:
                return

    async def close(self) -> None:
        self.drop()

    def after_fork_in_child(self) -> None:
        """The parent's connections are the parent's: two processes on one would take each other's replies."""
        _abandoned.extend(self._idle)
        self._reset()


_wires: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_abandoned: list[Any] = []  # kept, so that nothing is sent over them by whatever cleans up


def inherit_nothing(wire: Any) -> None:
    """Also for wires of other kinds: `after_fork_in_child` is called."""
    _wires[next(_numbers)] = wire


def _disown() -> None:
    for wire in tuple(_wires.values()):
        wire.after_fork_in_child()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_disown)
