"""The one figure that no event tells: records that are PENDING for too long. The store is asked when it is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from onceward.engine.events import Listener
from onceward.errors import OncewardError
from onceward.protocol.ports import Store
from onceward.runtime.bridge import run
from onceward.runtime.threads import ThreadRuntime

from .figures import old_pending
from .rules import thresholds_of

Ask = Callable[[], dict[str, int] | None]
"""How many there are, by operation; None if the store does not answer."""

TIMEOUT = 5.0
"""Seconds: whoever reads metrics waits for all of them, and not for long."""


class Client(Protocol):
    """As much of `Once` and `AsyncOnce` as is needed to tell what they do."""

    @property
    def store(self) -> Store: ...
    def subscribe(self, listener: Listener) -> Callable[[], None]: ...


def asker(once: Client, rules: dict[str, Any]) -> Ask:
    """Asks by a connection of its own, for a metrics library has threads of its own. No answer: no figures."""
    age = thresholds_of(rules).old_pending_age

    def ask() -> dict[str, int] | None:
        store = once.store
        clone = store.clone()
        try:
            run(clone.open(ThreadRuntime()))
            try:
                return run(old_pending(clone, age, TIMEOUT))
            finally:
                if clone is not store:
                    run(clone.close())
        except OncewardError:  # a store that is down shows in other figures, and must not stop these from being read
            return None

    return ask
