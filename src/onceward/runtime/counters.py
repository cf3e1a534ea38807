"""Count for one client, and write the counts to the store in the background."""

from __future__ import annotations

from onceward.engine.events import Bus
from onceward.engine.totals import HourlyCounts, Totals
from onceward.errors import ConfigurationError
from onceward.protocol.counters import HOUR
from onceward.protocol.ports import Store

from .background import BackgroundWriter
from .threads import nonce


class Counters:
    """The counts of one client. `writer` writes them, together with the history."""

    def __init__(self, store: Store, bus: Bus, writer: BackgroundWriter) -> None:
        if store.counters is None:
            raise ConfigurationError(
                f"{store.name} cannot keep counters",
                hint="use memory://, sqlite:///…, postgresql://…, redis://… or firestore://…, or leave counters= out",
            )
        self.writer = writer
        self.totals = bus.totals = Totals(writer.begin)
        self._book = HourlyCounts(nonce())
        writer.parts.append(self)

    def write(self) -> bool:
        """Write what is new now; return whether that succeeded."""
        return self.writer.write()

    def has_news(self) -> bool:
        return self._book.lacks(self.totals.counts())

    async def write_to(self, store: Store, timeout: float) -> None:
        if store.counters is not None:  # as in its original
            counts = self.totals.counts()
            hour = await store.counters.save_counts([], timeout=timeout) // HOUR
            counter_rows = self._book.enter(counts, hour)
            await store.counters.save_counts(counter_rows, timeout=timeout)
            self._book.written()

    def after_fork(self) -> None:
        """Count from zero, as another process."""
        self.totals.clear()
        self._book = HourlyCounts(nonce())
