"""Write the history of keys to the store in the background."""

from __future__ import annotations

import threading
import time
from typing import Final

from onceward.engine.events import Bus
from onceward.engine.history import HistoryCollector
from onceward.protocol.history import HistoryMode
from onceward.protocol.ports import Store

from .background import BackgroundWriter

BATCH: Final = 500
"""Events in one call."""


class HistoryWriter:
    """Writes what the collector of one client has collected."""

    def __init__(self, mode: HistoryMode, bus: Bus, writer: BackgroundWriter) -> None:
        self.collector = bus.history = HistoryCollector(mode, writer.begin, time.monotonic, threading.RLock)
        writer.parts.append(self)

    def has_news(self) -> bool:
        return self.collector.has_events()

    async def write_to(self, store: Store, timeout: float) -> None:
        """Write the events. Times that are only known locally are converted to the store's clock."""
        history = store.history
        waiting = self.collector.take()
        if history is None:  # as in the tests of a Django project
            return
        try:
            now = await history.append_history([], timeout=timeout)
            offset = now - int(time.monotonic() * 1_000_000)
            while waiting:
                batch = [one.event(offset) for one in waiting[:BATCH]]
                await history.append_history(batch, timeout=timeout)
                del waiting[:BATCH]
        except BaseException:
            self.collector.put_back(waiting)
            raise

    def after_fork(self) -> None:
        self.collector.clear()
