"""Write this process's counts to the store: in one call a minute, and at close.

It uses its own thread, so that slow counter writes delay no lease renewal, and connects only while it writes. A killed
process loses the counts it had not written: those of the last minute, or more if the store did not answer.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from contextlib import suppress

from onceward.engine.events import Bus, Event
from onceward.engine.totals import HourlyCounts, Totals
from onceward.errors import ConfigurationError, OncewardError
from onceward.protocol.counters import HOUR
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.ports import Store

from .bridge import run
from .nonce import nonce
from .threads import ThreadRuntime

WRITE_INTERVAL = 60.0
"""Seconds between two writes: a killed process loses up to this much."""

TIMEOUT = 5.0
"""Seconds for a write. `close` waits no longer either, if the store does not answer."""


class Counters:
    """Counts for one client and writes the counts. It starts its thread with the first event and joins it on close."""

    def __init__(self, store: Store, bus: Bus) -> None:
        if store.counters is None:
            raise ConfigurationError(
                f"{store.name} cannot keep counters",
                hint="use memory://, sqlite:///…, postgresql://…, redis://… or firestore://…, or leave counters= out",
            )
        self._store: Store = store
        self._bus = bus
        self.totals = bus.totals = Totals(self._begin)
        self._reset()
        _counters.add(self)

    def _reset(self) -> None:
        self._book = HourlyCounts(nonce())
        self._lock = threading.RLock()  # reentrant: a signal handler may count while its thread starts ours
        self._wakeup = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closing = False

    def _begin(self) -> None:
        """Start the thread. If that fails, try again with the next new scope, and at close."""
        with self._lock, suppress(RuntimeError):
            if self._thread is None and not self._closing:
                thread = threading.Thread(target=self._run, name="onceward-counters", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        last = False
        while not last:
            with self._lock:
                if not self._closing:
                    self._wakeup.wait(WRITE_INTERVAL)
                last = self._closing
            self.write()

    def write(self) -> bool:
        """Write new counts to the store; return whether that succeeded. A failure emits an event; no count is lost."""
        try:
            run(self._write())
        except Exception as error:  # noqa: BLE001 (counting must never affect the work)
            if self._bus.wants("counting_failed"):
                text = repr(error) if isinstance(error, OncewardError) else type(error).__name__
                self._bus.emit(Event(name="counting_failed", key="", scope=self._store.name, error=text))
            return False
        return True

    async def _write(self) -> None:
        counts = self.totals.counts()
        if not self._book.lacks(counts):
            return
        clone = self._store.clone()
        await clone.open(ThreadRuntime())
        try:
            if clone.counters is not None:  # as in its original
                hour = await clone.counters.save_counts([], timeout=TIMEOUT) // HOUR
                counter_rows = self._book.enter(counts, hour)
                await clone.counters.save_counts(counter_rows, timeout=TIMEOUT)
                self._book.written()
        finally:
            if clone is not self._store:
                await clone.close()

    def close(self) -> None:
        """Write the remaining counts, and join the thread."""
        with self._lock:
            self._closing = True
            self._wakeup.notify()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(TIMEOUT)
        elif self.totals.cells:
            self.write()

    def after_fork(self) -> None:
        """Start at zero in a forked child, as another process: the parent writes the earlier counts."""
        self.totals.clear()
        self._reset()


_counters: weakref.WeakSet[Counters] = weakref.WeakSet()


def _forget_parents_counts() -> None:
    for counters in tuple(_counters):
        counters.after_fork()


def _close_all() -> None:
    for counters in tuple(_counters):
        counters.close()


call_in_forked_child(_forget_parents_counts)
atexit.register(_close_all)
