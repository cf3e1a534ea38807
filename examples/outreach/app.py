"""The outreach system: e-mails, enrichment, replies and charges, each done once as `onceward.toml` declares."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from onceward import Once, Outcome, current_claim

HERE = Path(__file__).parent
TABLES = """
CREATE TABLE IF NOT EXISTS prospects (id INTEGER PRIMARY KEY, name TEXT, website TEXT, contact_email TEXT);
CREATE TABLE IF NOT EXISTS emails (id INTEGER PRIMARY KEY, prospect_id INTEGER, text TEXT, message_id TEXT);
CREATE UNIQUE INDEX IF NOT EXISTS one_message ON emails (message_id) WHERE message_id IS NOT NULL;
"""
COLUMNS = {"website": "website", "email": "contact_email"}
UPSERT = "INSERT INTO prospects (id, {0}) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET {0} = excluded.{0}"
SELECT = "SELECT {0} FROM prospects WHERE id = ?"


class Outreach:
    """One worker. Many may share the folder: what is done once is done once among all of them."""

    def __init__(
        self,
        folder: Path,
        *,
        send: Callable[[int, str], None],
        look_up: Callable[[int, str], str],
        pay: Callable[[str, int, str], str],
        store: Any = None,
    ) -> None:
        self.path = folder / "outreach.db"
        self.once = Once(store or f"sqlite:///{self.path}", app="outreach", operations=HERE / "onceward.toml")
        with self._database() as database:
            database.executescript(TABLES)

        @self.once.operation("email")
        def email(prospect_id: int, text: str) -> None:
            send(prospect_id, text)
            self._write("INSERT INTO emails (prospect_id, text) VALUES (?, ?)", prospect_id, text)

        @self.once.operation("enrich")
        def enrich(prospect_id: int, kind: str) -> str:
            found = look_up(prospect_id, kind)
            self._write(UPSERT.format(COLUMNS[kind]), prospect_id, found)
            return found

        @self.once.operation("reply")
        def reply(message_id: str, prospect_id: int, text: str) -> None:
            self._save_reply(message_id, prospect_id, text)

        @self.once.operation("charge")
        def charge(customer: str, invoice: int, cents: int) -> str:
            return pay(f"{customer}, invoice {invoice}", cents, current_claim().derived_key("charge"))

        self._email, self._enrich, self._reply, self.charge = email, enrich, reply, charge

    # ── what the rest of the system calls ──

    def send_email(self, prospect_id: int, text: str) -> dict[str, Any]:
        """{sent: True}, or why not: already_emailed_today, send_in_progress."""
        return answer("sent", self._email.outcome(prospect_id, text))

    def enrich(self, prospect_id: int, kind: str) -> dict[str, Any]:
        """Not if the data is there, not if it was tried today, never twice at once."""
        row = self._read(SELECT.format(COLUMNS[kind]), prospect_id)
        if row and row[0]:
            return {"skipped": True, "reason": "already_known"}
        return answer("enriched", self._enrich.outcome(prospect_id, kind))

    def receive(self, message_id: str | None, prospect_id: int, text: str) -> dict[str, Any]:
        """A reply. A repeated Message-ID is a duplicate; a mail without one is welcome every time."""
        if message_id is None:
            self._save_reply(None, prospect_id, text)
            return {"processed": True}
        outcome = self._reply.outcome(message_id, prospect_id, text)
        return {"duplicate": True} if outcome.replayed else answer("processed", outcome)

    def with_lock(self, name: str, work: Callable[[], Any]) -> Any:
        """The work's value, or None if somebody else is at it."""
        lock = self.once.try_lock(name, lease="300s")
        if lock is None:
            return None
        with lock:
            return work()

    def close(self) -> None:
        self.once.close()

    # ── rows ──

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=10)

    def _write(self, statement: str, *values: Any) -> None:
        with closing(self._database()) as database, database:
            database.execute(statement, values)

    def _read(self, statement: str, *values: Any) -> Any:
        with closing(self._database()) as database:
            return database.execute(statement, values).fetchone()

    def _save_reply(self, message_id: str | None, prospect_id: int, text: str) -> None:
        self._write(
            "INSERT INTO emails (prospect_id, text, message_id) VALUES (?, ?, ?)", prospect_id, text, message_id
        )


def answer(done: str, outcome: Outcome[Any]) -> dict[str, Any]:
    """The answers that callers know. The words are those of the table."""
    if outcome.executed:
        return {done: True}
    return {"skipped": True, "reason": outcome.reason}
