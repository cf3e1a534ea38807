"""The gauge of records that are PENDING for too long. No event reports it, so the store is read on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from onceward.engine.events import Listener
from onceward.errors import OncewardError
from onceward.protocol.ports import Store
from onceward.runtime.bridge import run
from onceward.runtime.threads import ThreadRuntime

from .figures import old_pending
from .rules import parse_thresholds

ReadOldPending = Callable[[], dict[str, int] | None]
"""Return the number of such records by operation; None if the store does not answer."""

TIMEOUT = 5.0
"""Seconds. A scrape waits for all metrics, and has a short timeout itself."""


class ObservedClient(Protocol):
    """The part of `Once` and `AsyncOnce` that metrics need."""

    @property
    def store(self) -> Store: ...
    def subscribe(self, listener: Listener) -> Callable[[], None]: ...


def old_pending_reader(once: ObservedClient, rules: dict[str, Any]) -> ReadOldPending:
    """Return a function that reads the gauge. It has its own connection: metrics libraries use threads of their own."""
    age = parse_thresholds(rules).old_pending_age

    def read() -> dict[str, int] | None:
        store = once.store
        clone = store.clone()
        try:
            run(clone.open(ThreadRuntime()))
            try:
                return run(old_pending(clone, age, TIMEOUT))
            finally:
                if clone is not store:
                    run(clone.close())
        except OncewardError:  # other metrics show that the store is down, and this must not fail the scrape
            return None

    return read
