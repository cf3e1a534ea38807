"""What this process has counted, written down: in one call a minute, and at close.

A thread of its own, so that a store that is slow about counters delays no lease; it connects for the moment of writing
only. A killed process loses what it had not written yet: a minute, or longer while the store did not answer.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from contextlib import suppress

from onceward.engine.events import Bus, Event
from onceward.engine.totals import HourlyCounts, Totals
from onceward.errors import ConfigurationError, OncewardError
from onceward.protocol.capabilities import KeepsCounters
from onceward.protocol.counters import HOUR
from onceward.protocol.ports import Store

from .bridge import run
from .nonce import nonce
from .threads import ThreadRuntime

EVERY = 60.0
"""Seconds between two writes: what a kill may cost."""

TIMEOUT = 5.0
"""Seconds for a write, and at most so many for whoever closes the client while the store does not answer."""


class Counters:
    """Counts for one client, and writes it down. Starts its thread with the first event and joins it on close."""

    def __init__(self, store: Store, bus: Bus) -> None:
        if not isinstance(store, KeepsCounters):
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
        self._lock = threading.RLock()  # a signal handler may count while its thread starts ours
        self._bell = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closing = False

    def _begin(self) -> None:
        """Somebody counts. Where no thread can be had it is tried again with the next new scope, and at close."""
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
                    self._bell.wait(EVERY)
                last = self._closing
            self.write()

    def write(self) -> bool:
        """Bring the store up to date; tells whether it is. What fails is told, and is not lost: it is tried again."""
        try:
            run(self._write())
        except Exception as error:  # noqa: BLE001 (whatever it is, counting must not disturb those who are counted)
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
            if isinstance(clone, KeepsCounters):  # as its original is
                hour = await clone.save_counts([], timeout=TIMEOUT) // HOUR
                sheets = self._book.enter(counts, hour)
                await clone.save_counts(sheets, timeout=TIMEOUT)
                self._book.written()
        finally:
            if clone is not self._store:
                await clone.close()

    def close(self) -> None:
        """Write down what is left, and join the thread."""
        with self._lock:
            self._closing = True
            self._bell.notify()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(TIMEOUT)
        elif self.totals.cells:
            self.write()

    def after_fork(self) -> None:
        """A child counts from nothing, and as another process: what was counted before is its parent's to write."""
        self.totals.clear()
        self._reset()


_counters: weakref.WeakSet[Counters] = weakref.WeakSet()


def _forget_parents_counts() -> None:
    for counters in tuple(_counters):
        counters.after_fork()


def _close_all() -> None:
    for counters in tuple(_counters):
        counters.close()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_parents_counts)
atexit.register(_close_all)
