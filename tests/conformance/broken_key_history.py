"""Stores whose history of keys is broken on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onceward.protocol.audit import AuditSignature
from onceward.protocol.history import HistoryEvent
from onceward.protocol.record import Record
from onceward.protocol.requests import Answer, ExpectedRecord
from onceward.stores.memory.store import MemoryStore


class ReadsTheLatestFirst(MemoryStore):
    """Returns the events as an index on the time gives them."""

    async def read_history(self, id: bytes, *, limit: int, timeout: float) -> list[HistoryEvent]:
        return (await super().read_history(id, limit=limit, timeout=timeout))[::-1]


class InsertsEveryEvent(MemoryStore):
    """A plain INSERT."""

    def _append_history(self, events: Sequence[HistoryEvent]) -> None:
        for event in events:
            if event.id in self._records:
                self._history.setdefault(event.id, []).append(event)


class KeepsEveryEvent(MemoryStore):
    """Drops nothing."""

    def _append_history(self, events: Sequence[HistoryEvent]) -> None:
        for event in events:
            before = self._history.get(event.id, [])
            super()._append_history([event])
            kept = self._history.get(event.id, [])
            self._history[event.id] = [one for one in before if one not in kept] + kept


class TrustsLateEvents(MemoryStore):
    """Writes every event that arrives, whatever has happened to its record."""

    def _append_history(self, events: Sequence[HistoryEvent]) -> None:
        for event in events:
            self._history.setdefault(event.id, []).append(event)


class KeepsTheHistoryOfForgottenKeys(MemoryStore):
    """Resets the record, but not its events."""

    def _forget(
        self,
        ids: Sequence[bytes],
        force: bool,
        seen: Mapping[bytes, ExpectedRecord],
        signed: AuditSignature | None,
    ) -> list[Answer]:
        before: dict[bytes, Any] = dict(self._history)
        answers = super()._forget(ids, force, seen, signed)
        self._history = before
        return answers


class KeepsTheHistoryOfDeletedRecords(MemoryStore):
    """Deletes the record, but not its events."""

    def _delete(self, record: Record) -> bool:
        before = self._history.get(record.id, [])
        deleted = super()._delete(record)
        self._history[record.id] = before
        return deleted
