"""Wake callers that wait for a key, through the server: NOTIFY when it is settled, LISTEN while a caller waits.

The first waiting caller starts a thread with its own connection. Waking only saves time: waiting callers also poll, so
correctness does not depend on it. Behind a pooler LISTEN does not work, and the thread ends.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

logger = logging.getLogger("onceward.postgres")

CONNECT_TIMEOUT = 5  # seconds
RETRY_DELAY = 1.0  # seconds before the next attempt
POOLER_WARNING = (
    "%s: notify=1 has no effect behind a pooler, so waiting callers only poll; remove notify=1 from the URL"
)


class Listener:
    """One per store. Calls `wake` from its thread."""

    def __init__(self, conninfo: str, name: str, channel: str, wake: Callable[[Iterable[bytes]], None]) -> None:
        self._conninfo = conninfo
        self._name = name
        self._channel = channel
        self._wake = wake
        self.reset()

    def reset(self) -> None:
        """Reset the state. Also called in a forked child, where the thread does not exist."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop_pipe: tuple[int, int] | None = None
        self.is_listening = threading.Event()

    def start(self) -> None:
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None:
                stop_pipe = self._stop_pipe = os.pipe()
                self._thread = threading.Thread(
                    target=self._run, args=(stop_pipe[0],), name="onceward-listener", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        with self._lock:
            thread, stop_pipe = self._thread, self._stop_pipe
            self._thread = self._stop_pipe = None
            self.is_listening.clear()
        if thread is not None and stop_pipe is not None:
            os.write(stop_pipe[1], b".")
            thread.join(CONNECT_TIMEOUT)
            for end in stop_pipe:
                os.close(end)

    def _run(self, stop_pipe: int) -> None:
        while True:
            try:
                with psycopg.connect(self._conninfo, autocommit=True, connect_timeout=CONNECT_TIMEOUT) as connection:
                    if self._listen(connection, stop_pipe):
                        return
            except psycopg.Error:
                self.is_listening.clear()
            if select.select([stop_pipe], [], [], RETRY_DELAY)[0]:
                return

    def _listen(self, connection: psycopg.Connection[Any], stop_pipe: int) -> bool:
        """Listen until stopped. Return True if the thread must end: it was stopped, or there is a pooler."""
        pgconn = connection.pgconn
        [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
        if pid != pgconn.backend_pid:
            logger.warning(POOLER_WARNING, self._name)
            return True
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        self.is_listening.set()
        while True:
            ready, _, _ = select.select([pgconn.socket, stop_pipe], [], [])
            if stop_pipe in ready:
                return True
            pgconn.consume_input()
            while (notification := pgconn.notifies()) is not None:
                with suppress(ValueError):  # another application's message on our channel
                    self._wake([bytes.fromhex(notification.extra.decode())])
