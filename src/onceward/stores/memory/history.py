"""The history of keys in memory: a list of events per record."""

from __future__ import annotations

from collections.abc import Sequence

from onceward.protocol.capabilities import History
from onceward.protocol.history import HistoryEvent, add_event, belongs_to
from onceward.protocol.ports import Clock
from onceward.stores.mutex import Mutex

from .records import MemoryRecords


class MemoryHistory(MemoryRecords):
    """The history of `MemoryStore`."""

    _clock: Clock
    _mutex: Mutex

    @property
    def history(self) -> History:
        return self

    async def append_history(self, events: Sequence[HistoryEvent], *, timeout: float) -> int:
        self._mutex.run(self._append_history, events)
        return self._clock.now()

    async def read_history(self, id: bytes, *, limit: int, timeout: float) -> list[HistoryEvent]:
        return self._history.get(id, [])[-limit:]

    # ── called with the mutex held ──

    def _append_history(self, events: Sequence[HistoryEvent]) -> None:
        for event in events:
            if belongs_to(event, self._records.get(event.id)):
                self._history[event.id] = add_event(self._history.get(event.id, ()), event)
                if event.id not in self._records:  # purged meanwhile, by a thread without the mutex
                    self._history.pop(event.id, None)
