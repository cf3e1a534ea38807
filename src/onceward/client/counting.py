"""Turn on the counters of a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceward.engine.events import Bus
    from onceward.protocol.ports import Store
    from onceward.runtime.counters import Counters

    from .base import BaseClient


def make_counters(store: Store, bus: Bus) -> Counters:
    """Return the counters of a client."""
    from onceward.runtime.counters import Counters  # imported only if they are used

    return Counters(store, bus)


def enable_counters(once: BaseClient) -> None:
    """Turn on `counters=True` for an existing client. The CLI commands do this with the user's client.

    If the store cannot keep counters, do nothing.
    """
    if once.counters is None and once.store.counters is not None:
        once.counters = make_counters(once.store, once.engine.bus)
        for engine in (once.engine, *once._async_engines):  # noqa: SLF001 (part of the client)
            engine.count_by_scope()
