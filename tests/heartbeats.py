"""Heartbeats for tests: they renew leases only when the test calls `tick`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from onceward.runtime.heartbeat import Heartbeat
from onceward.runtime.threads import run

THREAD_NAME = "onceward-heartbeat"


class IdleHeartbeat(Heartbeat):
    """A heartbeat whose thread renews nothing by itself, or it would race against a test in fake time."""

    def _run(self) -> None:
        while not self._closing:
            self._wakeup.wait(60)
        if self._own_store is not None and self._own_store is not self._store:
            run(self._own_store.close())


class ThreadlessHeartbeat(Heartbeat):
    """A heartbeat without a thread."""

    def _start(self) -> None:
        """Start nothing."""


def use_heartbeat(once: Any, kind: type[Heartbeat], monotonic: Callable[[], float]) -> None:
    """Let a new client, which holds no lease yet, use a heartbeat of this kind and this clock."""
    once.heartbeat = once.engine.heartbeat = kind(once.store, once.engine.bus, monotonic=monotonic)


def heartbeat_threads() -> set[threading.Thread]:
    """Return the threads of all heartbeats in this process."""
    return {thread for thread in threading.enumerate() if thread.name == THREAD_NAME}


def stop_renewing(heartbeat: Heartbeat) -> None:
    """Let all leases expire, as if the process had been killed."""
    for lease in heartbeat.held():
        heartbeat.drop(lease)


def refuse_to_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if `close` waits. Only the heartbeat module is affected: servers of fixtures may sleep."""

    def sleep(_: float) -> None:
        pytest.fail("close waits for its own caller")

    monkeypatch.setattr("onceward.runtime.heartbeat.time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
