"""Connecting to a slow server: all replies of the handshake together take at most one timeout."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from onceward import StoreUnavailable
from onceward.runtime.threads import run
from onceward.stores.redis.address import parse
from onceward.stores.redis.connection import ThreadTransport

TIMEOUT = 0.5  # seconds
DELAY = 0.7 * TIMEOUT  # of each reply: one arrives in time, the second does not


class SlowServer:
    """Replies OK to everything, after a delay."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.received: list[bytes] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            while data := connection.recv(4096):
                self.received.append(data)
                self._closed.wait(DELAY)
                try:
                    connection.sendall(b"+OK\r\n")
                except OSError:  # the client has given up
                    return

    @contextmanager
    def running(self) -> Iterator[SlowServer]:
        self._thread.start()
        try:
            yield self
        finally:
            self._closed.set()
            self._thread.join()  # until the client has closed its connection
            self._listener.close()


@pytest.mark.fault("F52")
def test_the_handshake_takes_one_timeout_in_total() -> None:
    with SlowServer().running() as server:
        address, _ = parse(f"redis://user:password@127.0.0.1:{server.port}/3")
        transport = ThreadTransport(address)
        with pytest.raises(StoreUnavailable, match="no reply within"):
            run(transport.call(b"PING\r\n", TIMEOUT, retryable=False))
    assert b"AUTH" in server.received[0]
    assert not any(b"SELECT" in one or b"PING" in one for one in server.received), "it gave up before"
