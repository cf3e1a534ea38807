"""Wake callers that wait for a key when another process settles it: one subscriber connection in its own thread.

This only saves time. Waiting callers also poll, so they proceed even if the notifier cannot connect or may not
subscribe. The thread starts with the first waiting caller, and ends some seconds after the last.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis

from .address import RedisAddress
from .transport import register_for_fork

CONNECT_TIMEOUT: Final = 5.0  # seconds
IDLE_TIMEOUT: Final = 5.0  # seconds without a waiting caller after which the thread ends
POLL_INTERVAL: Final = 1.0  # seconds between checks whether a caller still waits
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
        self._subscriber: Any = None  # redis-py's PubSub, once it is connected
        self._closed = threading.Event()

    def listen(self, id: bytes) -> Callable[[], None]:
        """Listen for this record. Return a function that stops listening."""
        with self._lock:
            self._listening[id] += 1
            if self._listening[id] == 1 and self._subscriber is not None:
                self._subscribe(self._subscriber.subscribe, [id])
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
                        if self._subscriber is not None:
                            self._subscribe(self._subscriber.unsubscribe, [id])

        return stop

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            if self._subscriber is not None:
                self._subscribe(self._subscriber.unsubscribe, list(self._listening))  # its reply wakes the thread

    def _subscribe(self, change: Callable[..., object], ids: Sequence[bytes]) -> None:
        """Subscribe to the channels of these ids, or unsubscribe from them."""
        if ids:
            with contextlib.suppress(redis.RedisError, OSError):  # the thread notices, too
                change(*(self._channels + id for id in ids))

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="onceward-redis-notifier", daemon=True)
        with contextlib.suppress(RuntimeError):  # no thread available: then callers poll
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(redis.RedisError, OSError, ValueError):
                self._receive()
            with self._lock:
                if not self._listening or self._closed.is_set():
                    self._thread = None
                    return
            self._closed.wait(RECONNECT_DELAY)
        self._thread = None

    def _receive(self) -> None:
        """Connect, subscribe and wake callers until there are no more listeners or the connection is lost."""
        with (
            self._address.client(CONNECT_TIMEOUT) as client,
            client.pubsub(ignore_subscribe_messages=True) as subscriber,
        ):
            try:
                with self._lock:
                    subscriber.subscribe(*(self._channels + id for id in self._listening))
                    self._subscriber = subscriber
                used_at = time.monotonic()
                while not self._closed.is_set() and time.monotonic() - used_at < IDLE_TIMEOUT:
                    message = subscriber.get_message(timeout=POLL_INTERVAL)
                    if message is not None:
                        self._wake(message["channel"][len(self._channels) :])
                    if self._listening:
                        used_at = time.monotonic()
            finally:
                self._subscriber = None

    def after_fork_in_child(self) -> None:
        self._reset()
