"""The consumer: one transaction claims the message and writes the service's row, or does neither."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from examples.fleet.message import Message, event_id, ordering, service_id
from onceward import Once, Outcome
from onceward.states import State

CREATE = """
CREATE TABLE IF NOT EXISTS ops_services (
    serviceId TEXT PRIMARY KEY, env TEXT, status TEXT, version TEXT, region TEXT, updatedAt TEXT, messageId TEXT
)
"""
UPSERT = "REPLACE INTO ops_services VALUES (?, ?, ?, ?, ?, ?, ?)"


def apply_to(services: State[str], table: sqlite3.Connection, message: Message) -> Outcome[str]:
    """One transaction: the message is known and the row is written, or neither."""
    payload = message.payload
    id = service_id(payload["env"], payload["service"], payload.get("region", ""))
    place = ordering(message)
    with table:
        outcome = services.apply_in(table, id, place, payload["status"], event_id=event_id(payload))
        if outcome.applied:
            write(table, id, message, str(place.event_time))
    return outcome


def write(table: sqlite3.Connection, id: str, message: Message, happened: str) -> None:
    payload = message.payload
    facts = (payload["env"], payload["status"], payload.get("version"), payload.get("region"))
    table.execute(UPSERT, (id, *facts, happened, message.id))


class Consumer:
    """Applies messages to `ops_services`, in the user's own file and transaction."""

    def __init__(self, path: Path) -> None:
        self.once = Once(f"sqlite:///{path}?synchronous=NORMAL")
        self._services = self.once.state("ops_services", str)
        self._services.read("nobody yet")  # opens the store, so that its tables are there
        self._table = sqlite3.connect(path, timeout=30)
        self._table.execute(CREATE)

    def handle(self, message: Message) -> dict[str, Any]:
        """What the push endpoint answers. Whatever it is, the message may be acknowledged, unless it was parked."""
        outcome = apply_to(self._services, self._table, message)
        return {"applied": outcome.applied, "reason": outcome.reason}

    def close(self) -> None:
        self._table.close()
        self.once.close()


class Unguarded(Consumer):
    """The same without a guard, as the first version of such a consumer is: the last message to arrive wins."""

    def handle(self, message: Message) -> dict[str, Any]:
        payload = message.payload
        with self._table:
            id = service_id(payload["env"], payload["service"], payload.get("region", ""))
            write(self._table, id, message, str(ordering(message).event_time))
        return {"applied": True, "reason": "applied"}
