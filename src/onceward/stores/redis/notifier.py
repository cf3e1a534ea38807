"""Wakes those who wait for a key when another process settles it: one subscriber connection, in a thread of its own.

It is a courtesy. Whoever waits asks again by itself after a while, so a bell that cannot ring (no connection, no right
to subscribe) costs only time. The thread begins with the first who waits, and ends some seconds after the last.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import redis
import redis.connection

from .address import RedisAddress
from .connection import CHUNK, inherit_nothing
from .resp import Garbage, Replies, Reply, command

CONNECTING: Final = 5.0  # seconds
IDLE: Final = 5.0  # seconds without anybody who waits, after which the thread ends
PAUSE: Final = 1.0  # seconds between attempts to connect


class RedisNotifier:
    """Calls `wake` with the id of each record that was settled, as far as somebody listens for it."""

    def __init__(self, place: RedisAddress, channels: bytes, wake: Callable[[bytes], None]) -> None:
        self._place = place
        self._channels = channels
        self._wake = wake
        self._reset()
        inherit_nothing(self)

    def _reset(self) -> None:
        self._listening: Counter[bytes] = Counter()
        self._lock = threading.RLock()  # a signal handler may wait for a key, too
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None
        self._closed = threading.Event()

    def listen(self, id: bytes) -> Callable[[], None]:
        """Listen for this record; returns how to stop that."""
        with self._lock:
            self._listening[id] += 1
            if self._listening[id] == 1:
                self._say(b"SUBSCRIBE", [id])
            if self._thread is None and not self._closed.is_set():
                self._begin()
        return self._stopper(id)

    def _stopper(self, id: bytes) -> Callable[[], None]:
        left = iter((True,))

        def stop() -> None:
            with self._lock:
                if next(left, False) and self._listening[id] > 0:
                    self._listening[id] -= 1
                    if not self._listening[id]:
                        del self._listening[id]
                        self._say(b"UNSUBSCRIBE", [id])

        return stop

    def close(self) -> None:
        self._closed.set()
        self._hang_up()

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="onceward-bell", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread can be had: then they ask by themselves
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(redis.RedisError, OSError, Garbage, ValueError):
                self._attend()
            self._hang_up()
            with self._lock:
                if not self._listening or self._closed.is_set():
                    self._thread = None
                    return
            self._closed.wait(PAUSE)
        self._thread = None

    def _attend(self) -> None:
        """Connect, subscribe, and ring until nobody listens or the connection ends."""
        connection: Any = self._place.connection(redis.connection, CONNECTING)
        try:
            connection.connect()
            connected: socket.socket = connection._sock  # noqa: SLF001 (as in `link`)
            connected.settimeout(IDLE)
            with self._lock:
                self._socket = connected
                self._say(b"SUBSCRIBE", list(self._listening))
            replies = Replies()
            while not self._closed.is_set():
                try:
                    data = connected.recv(CHUNK)
                except TimeoutError:
                    if not self._listening:
                        return
                    continue
                if not data:
                    return
                for reply in replies.feed(data):
                    self._heard(reply)
        finally:
            self._socket = None
            connection.disconnect()

    def _heard(self, reply: Reply) -> None:
        if isinstance(reply, list) and len(reply) == 3 and reply[0] == b"message":  # noqa: PLR2004 (kind, channel, text)
            self._wake(reply[1][len(self._channels) :])

    def _say(self, what: bytes, ids: list[bytes]) -> None:
        if self._socket is not None and ids:
            with contextlib.suppress(OSError):  # its thread finds out, too
                self._socket.sendall(command([what, *(self._channels + id for id in ids)]))

    def _hang_up(self) -> None:
        connected = self._socket
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def after_fork_in_child(self) -> None:
        self._reset()
