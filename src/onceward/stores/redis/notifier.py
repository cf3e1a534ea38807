"""Wake callers that wait for a key when another process settles it: one subscriber connection in its own thread.

This only saves time. Waiting callers also poll, so they proceed even if the notifier cannot connect or may not
subscribe. The thread starts with the first waiting caller, and ends some seconds after the last.
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
from .connection import CHUNK, register_for_fork
from .resp import ProtocolError, Reply, ReplyParser, command

CONNECT_TIMEOUT: Final = 5.0  # seconds
IDLE_TIMEOUT: Final = 5.0  # seconds without a waiting caller after which the thread ends
RECONNECT_DELAY: Final = 1.0  # seconds between attempts to connect


class RedisNotifier:
    """Calls `wake` with the id of each settled record that has a listener."""

    def __init__(self, address: RedisAddress, channels: bytes, wake: Callable[[bytes], None]) -> None:
        self._address = address
        self._channels = channels
        self._wake = wake
        self._reset()
        register_for_fork(self)

    def _reset(self) -> None:
        self._listening: Counter[bytes] = Counter()
        self._lock = threading.RLock()  # reentrant: a signal handler may wait for a key, too
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None
        self._closed = threading.Event()

    def listen(self, id: bytes) -> Callable[[], None]:
        """Listen for this record. Return a function that stops listening."""
        with self._lock:
            self._listening[id] += 1
            if self._listening[id] == 1:
                self._send(b"SUBSCRIBE", [id])
            if self._thread is None and not self._closed.is_set():
                self._start()
        return self._make_stop(id)

    def _make_stop(self, id: bytes) -> Callable[[], None]:
        left = iter((True,))

        def stop() -> None:
            with self._lock:
                if next(left, False) and self._listening[id] > 0:
                    self._listening[id] -= 1
                    if not self._listening[id]:
                        del self._listening[id]
                        self._send(b"UNSUBSCRIBE", [id])

        return stop

    def close(self) -> None:
        self._closed.set()
        self._shut_down()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="onceward-redis-notifier", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread available: then callers poll
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(redis.RedisError, OSError, ProtocolError, ValueError):
                self._receive()
            self._shut_down()
            with self._lock:
                if not self._listening or self._closed.is_set():
                    self._thread = None
                    return
            self._closed.wait(RECONNECT_DELAY)
        self._thread = None

    def _receive(self) -> None:
        """Connect, subscribe and wake callers until there are no more listeners or the connection is lost."""
        connection: Any = self._address.connection(redis.connection, CONNECT_TIMEOUT)
        try:
            connection.connect()
            connected: socket.socket = connection._sock  # noqa: SLF001 (as in `connection`)
            connected.settimeout(IDLE_TIMEOUT)
            with self._lock:
                self._socket = connected
                self._send(b"SUBSCRIBE", list(self._listening))
            replies = ReplyParser()
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
                    self._on_reply(reply)
        finally:
            self._socket = None
            connection.disconnect()

    def _on_reply(self, reply: Reply) -> None:
        if isinstance(reply, list) and len(reply) == 3 and reply[0] == b"message":  # noqa: PLR2004 (kind, channel, text)
            self._wake(reply[1][len(self._channels) :])

    def _send(self, name: bytes, ids: list[bytes]) -> None:
        if self._socket is not None and ids:
            with contextlib.suppress(OSError):  # its thread notices, too
                self._socket.sendall(command([name, *(self._channels + id for id in ids)]))

    def _shut_down(self) -> None:
        connected = self._socket
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def after_fork_in_child(self) -> None:
        self._reset()
