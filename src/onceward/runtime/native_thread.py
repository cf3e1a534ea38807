"""Native operating system threads. Under gevent and eventlet, `threading.Thread` is a greenlet.

A greenlet runs only while no other greenlet computes. A heartbeat in a greenlet would starve, and leases would expire.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

JOIN_INTERVAL = 0.005  # seconds between checks for the end of a thread


def original(name: str) -> Any:
    """Return a function of `_thread` as it was before monkey-patching."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None:
        return gevent.get_original("_thread", name)
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None:
        return getattr(eventlet.original("_thread"), name)
    return getattr(_thread, name)


def is_patched() -> bool:
    """Return whether `threading.Thread` starts greenlets."""
    return original("start_new_thread") is not _thread.start_new_thread


class Wakeup:
    """Wakes a native thread, from any thread, greenlet or signal handler. A wake-up before the wait is not lost."""

    def __init__(self) -> None:
        self._lock = original("allocate_lock")()
        self._lock.acquire()

    def wake(self) -> None:
        with suppress(RuntimeError):  # already awake
            self._lock.release()

    def wait(self, seconds: float) -> None:
        self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


class GreenletProofThread:
    """A daemon thread under gevent or eventlet, with the methods of `threading.Thread` that the heartbeat uses."""

    def __init__(self, target: Callable[[], None]) -> None:
        self._target = target
        self._alive = False
        self._ident = 0

    def start(self) -> None:
        self._alive = True
        try:
            original("start_new_thread")(self._run, ())
        except BaseException:
            self._alive = False
            raise

    def _run(self) -> None:
        self._ident = original("get_ident")()
        try:
            self._target()
        finally:
            self._alive = False

    def is_alive(self) -> bool:
        return self._alive

    def is_current(self) -> bool:
        return bool(original("get_ident")() == self._ident)

    def join(self, timeout: float) -> None:
        """Wait until the thread ends. Other greenlets run meanwhile."""
        ends = time.monotonic() + timeout
        while self._alive and time.monotonic() < ends:
            time.sleep(JOIN_INTERVAL)


class PlainThread(threading.Thread):
    """A daemon thread where nothing is patched."""

    def is_current(self) -> bool:
        return self is threading.current_thread()


def native_thread(target: Callable[[], None], name: str) -> PlainThread | GreenletProofThread:
    """Return a native operating system thread that is not started yet."""
    return GreenletProofThread(target) if is_patched() else PlainThread(target=target, name=name, daemon=True)
