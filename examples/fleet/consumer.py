"""The consumer: one transaction claims the message and writes the service's row, or does neither."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from examples.fleet.message import Message, event_id, ordering, service_id
from onceward import Once

CREATE = """
CREATE TABLE IF NOT EXISTS ops_services (
    serviceId TEXT PRIMARY KEY, env TEXT, status TEXT, version TEXT, region TEXT, updatedAt TEXT, messageId TEXT
)
"""
UPSERT = "REPLACE INTO ops_services VALUES (?, ?, ?, ?, ?, ?, ?)"


class Consumer:
    """Applies messages to `ops_services`, in the user's own file and transaction."""

    def __init__(self, path: Path) -> None:
        self.once = Once(f"sqlite:///{path}?synchronous=NORMAL")
        self._services = self.once.state("ops_services")
        self._services.read("nobody yet")  # opens the store, so that its tables are there
        self._table = sqlite3.connect(path, timeout=30)
        self._table.execute(CREATE)

    def handle(self, message: Message) -> dict[str, Any]:
        """What the push endpoint answers. Whatever it is, the message may be acknowledged, unless it was parked."""
        payload = message.payload
        id = service_id(payload["env"], payload["service"], payload.get("region", ""))
        place = ordering(message)
        with self._table:
            outcome = self._services.apply_in(self._table, id, place, payload["status"], event_id=event_id(payload))
            if outcome.applied:
                self._write(id, message, str(place.event_time))
        return {"applied": outcome.applied, "reason": outcome.reason}

    def _write(self, id: str, message: Message, happened: str) -> None:
        payload = message.payload
        facts = (payload["env"], payload["status"], payload.get("version"), payload.get("region"))
        self._table.execute(UPSERT, (id, *facts, happened, message.id))

    def close(self) -> None:
        self._table.close()
        self.once.close()


class Unguarded(Consumer):
    """The same without a guard, as the first version of such a consumer is: the last message to arrive wins."""

    def handle(self, message: Message) -> dict[str, Any]:
        payload = message.payload
        with self._table:
            self._write(
                service_id(payload["env"], payload["service"], payload.get("region", "")),
                message,
                str(ordering(message).event_time),
            )
        return {"applied": True, "reason": "applied"}
