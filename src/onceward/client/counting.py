"""Turn on what a client collects in the background: counters, and the history of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceward.errors import ConfigurationError
from onceward.protocol.history import MODES, HistoryMode
from onceward.runtime.background import BackgroundWriter

if TYPE_CHECKING:
    from onceward.engine.events import Bus
    from onceward.protocol.ports import Store
    from onceward.runtime.counters import Counters

    from .base import BaseClient


def start_collecting(
    store: Store, bus: Bus, *, counters: bool, history: HistoryMode
) -> tuple[BackgroundWriter, Counters | None]:
    """Return what writes in the background, and the counters of a client, if it counts."""
    if history not in MODES:
        raise ConfigurationError(f"there is no history mode {history!r}", hint=f"choose one of: {', '.join(MODES)}")
    if history == "all" and store.history is None:
        raise ConfigurationError(
            f"{store.name} cannot keep the history of keys",
            hint="use memory://, sqlite:///… or postgresql://…, or leave history= out",
        )
    writer = BackgroundWriter(store, bus)
    if history != "off" and store.history is not None:
        from onceward.runtime.history import HistoryWriter  # imported only if it is used

        HistoryWriter(history, bus, writer)
    return writer, make_counters(store, bus, writer) if counters else None


def make_counters(store: Store, bus: Bus, writer: BackgroundWriter) -> Counters:
    """Return the counters of a client."""
    from onceward.runtime.counters import Counters  # imported only if they are used

    return Counters(store, bus, writer)


def enable_counters(once: BaseClient) -> None:
    """Turn on `counters=True` for an existing client. The CLI commands do this with the user's client.

    If the store cannot keep counters, do nothing.
    """
    if once.counters is None and once.store.counters is not None:
        once.counters = make_counters(once.store, once.engine.bus, once.background)
        for engine in (once.engine, *once._async_engines):  # noqa: SLF001 (part of the client)
            engine.count_by_scope()
