"""Those who wait for a key are woken by the server: NOTIFY when it is settled, LISTEN while anybody waits.

A thread with a connection of its own, started by the first who waits. Waking only saves time: whoever waits also asks
now and then, so that nothing depends on it. Behind a pooler it cannot work, and gives up.
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

CONNECTING = 5  # seconds
AGAIN = 1.0  # seconds before the next try
IN_VAIN = "%s: those who wait are not woken: a pooler stands between us and the server; leave out notify=1"


class Listener:
    """One for each store. `wake` is called from its thread."""

    def __init__(self, conninfo: str, name: str, channel: str, wake: Callable[[Iterable[bytes]], None]) -> None:
        self._conninfo = conninfo
        self._name = name
        self._channel = channel
        self._wake = wake
        self.reset()

    def reset(self) -> None:
        """Also in the child of a fork, where the thread does not exist."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._bell: tuple[int, int] | None = None
        self.is_listening = threading.Event()

    def start(self) -> None:
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is None:
                bell = self._bell = os.pipe()
                self._thread = threading.Thread(
                    target=self._run, args=(bell[0],), name="onceward-listener", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        with self._lock:
            thread, bell = self._thread, self._bell
            self._thread = self._bell = None
            self.is_listening.clear()
        if thread is not None and bell is not None:
            os.write(bell[1], b".")
            thread.join(CONNECTING)
            for end in bell:
                os.close(end)

    def _run(self, bell: int) -> None:
        while True:
            try:
                with psycopg.connect(self._conninfo, autocommit=True, connect_timeout=CONNECTING) as connection:
                    if self._listen(connection, bell):
                        return
            except psycopg.Error:
                self.is_listening.clear()
            if select.select([bell], [], [], AGAIN)[0]:
                return

    def _listen(self, connection: psycopg.Connection[Any], bell: int) -> bool:
        """True if it was told to stop, or is of no use here."""
        own = connection.pgconn
        [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
        if pid != own.backend_pid:
            logger.warning(IN_VAIN, self._name)
            return True
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        self.is_listening.set()
        while True:
            told, _, _ = select.select([own.socket, bell], [], [])
            if bell in told:
                return True
            own.consume_input()
            while (notice := own.notifies()) is not None:
                with suppress(ValueError):  # somebody else's word on our channel
                    self._wake([bytes.fromhex(notice.extra.decode())])
