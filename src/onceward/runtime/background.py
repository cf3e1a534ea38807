"""Write what a process collects, counts and history, to the store: together, once a minute, and at close.

It uses its own thread, so that slow writes delay no lease renewal, and connects only while it writes. A killed process
loses what it had not written: that of the last minute, or more if the store did not answer.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from contextlib import suppress
from typing import Protocol

from onceward.engine.events import Bus, Event
from onceward.errors import OncewardError
from onceward.protocol.fork import call_in_forked_child
from onceward.protocol.ports import Store

from .threads import ThreadRuntime, run

WRITE_INTERVAL = 60.0
"""Seconds between two writes: a killed process loses up to this much."""

TIMEOUT = 5.0
"""Seconds for a write. `close` waits no longer either, if the store does not answer."""


class Collected(Protocol):
    """Something that a process collects and writes."""

    def has_news(self) -> bool:
        """Return whether the store lacks anything."""
        ...

    async def write_to(self, store: Store, timeout: float) -> None:
        """Write it. After an exception, it is written with the next call."""
        ...

    def after_fork(self) -> None:
        """Start empty in a forked child: the parent writes the rest."""
        ...


class BackgroundWriter:
    """Writes the parts of one client. It starts its thread with the first news, and joins it on close."""

    def __init__(self, store: Store, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self.parts: list[Collected] = []
        self._reset()
        _writers.add(self)

    def _reset(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler may collect while its thread starts ours
        self._wakeup = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closing = False
        self._closed = False

    @property
    def is_running(self) -> bool:
        """Whether its thread was started."""
        return self._thread is not None

    def begin(self) -> None:
        """Start the thread. If that fails, try again with the next news, and at close."""
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
        """Write what is new; return whether that succeeded. A failure emits an event; it is written again later."""
        try:
            run(self._write())
        except Exception as error:  # noqa: BLE001 (collecting must never affect the work)
            if self._bus.wants("counting_failed"):
                text = repr(error) if isinstance(error, OncewardError) else type(error).__name__
                self._bus.emit(Event(name="counting_failed", key="", scope=self._store.name, error=text))
            return False
        return True

    async def _write(self) -> None:
        parts = [part for part in self.parts if part.has_news()]
        if not parts:
            return
        clone = self._store.clone()
        await clone.open(ThreadRuntime())
        try:
            for part in parts:
                await part.write_to(clone, TIMEOUT)
        finally:
            if clone is not self._store:
                await clone.close()

    def close(self) -> None:
        """Write the rest, and join the thread. A second call does nothing, even if the first wrote nothing."""
        self.stop()
        self.join(time.monotonic() + TIMEOUT)

    def stop(self) -> None:
        """Let the thread write the rest and end."""
        with self._lock:
            self._closing = True
            self._wakeup.notify()

    def join(self, deadline: float) -> None:
        """Wait until the rest is written, at most until this monotonic time. Write it here if there is no thread."""
        with self._lock:
            thread, is_closed = self._thread, self._closed
            self._thread, self._closed = None, True
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))
        elif not is_closed and any(part.has_news() for part in self.parts):
            self.write()

    def after_fork(self) -> None:
        """Start at zero in a forked child, as another process."""
        for part in self.parts:
            part.after_fork()
        self._reset()


_writers: weakref.WeakSet[BackgroundWriter] = weakref.WeakSet()


def _start_empty_in_child() -> None:
    for writer in tuple(_writers):
        writer.after_fork()


def _close_all() -> None:
    """Close all writers at exit. They write at the same time, so that many wait no longer than one."""
    writers = tuple(_writers)
    for writer in writers:
        writer.stop()
    deadline = time.monotonic() + TIMEOUT
    for writer in writers:
        writer.join(deadline)


call_in_forked_child(_start_empty_in_child)
atexit.register(_close_all)
