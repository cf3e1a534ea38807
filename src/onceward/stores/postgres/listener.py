"""Those who wait for a key are woken by the server: NOTIFY when it is settled, LISTEN while anybody waits.

A thread with a connection of its own, started by the first who waits. Waking only saves time: whoever waits also asks
now and then, so that nothing depends on it. Behind a pooler it cannot work, and gives up.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psycopg

from onceward.bridge import run
from onceward.errors import StoreUnavailable
from onceward.worlds.threads import Threads

from .faults import Refused
from .wire import Wire

logger = logging.getLogger("onceward.postgres")

CONNECTING = 5.0  # seconds
AGAIN = 1.0  # seconds before the next try
IN_VAIN = "%s: those who wait are not woken: a pooler stands between us and the server; leave out notify=1"


class Listener:
    """One for each store. `wake` is called from its thread."""

    def __init__(self, conninfo: str, name: str, channel: str, wake: Callable[[Iterable[bytes]], None]) -> None:
        self._conninfo = conninfo.encode()
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
            wire: Wire | None = None
            try:
                wire = run(Wire.connect(self._conninfo, Threads(), self._name, time.monotonic() + CONNECTING))
                if self._listen(wire, bell):
                    return
            except (StoreUnavailable, Refused, psycopg.Error):
                self.is_listening.clear()
            finally:
                if wire is not None:
                    wire.close()
            if select.select([bell], [], [], AGAIN)[0]:
                return

    def _listen(self, wire: Wire, bell: int) -> bool:
        """True if it was told to stop, or is of no use here."""
        deadline = time.monotonic() + CONNECTING
        [(pid,)] = run(wire.ask("SELECT pg_backend_pid()", deadline))
        if pid != wire.pgconn.backend_pid:
            logger.warning(IN_VAIN, self._name)
            return True
        run(wire.command(f'LISTEN "{self._channel}"', deadline))
        self.is_listening.set()
        while True:
            told, _, _ = select.select([wire.pgconn.socket, bell], [], [])
            if bell in told:
                return True
            wire.pgconn.consume_input()
            while (notice := wire.pgconn.notifies()) is not None:
                with suppress(ValueError):  # somebody else's word on our channel
                    self._wake([bytes.fromhex(notice.extra.decode())])
