"""A store in a hundred lines, correct with its lock and wrong without: the checker must see the difference."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from onceward.protocol.audit import AuditEntry, AuditFilter
from onceward.protocol.capabilities import Capabilities
from onceward.protocol.ports import Clock, Filter, Page
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, ExpectedRecord, Renewal
from onceward.protocol.runtime import Runtime
from onceward.protocol.transitions import purgeable
from onceward.testing.history import Forget, Read, Request
from onceward.testing.history.operation import outcome

OPENING = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "CREATE TABLE IF NOT EXISTS records (id BLOB PRIMARY KEY, record BLOB)",
)
HESITATION = 0.0005
"""Seconds between the read and the write, like a round trip to a server."""


class TinyStore(Capabilities):
    """Records as msgpack in a SQLite file. `locked` False: get, pause, put, as if there were no other clients."""

    inline = False

    def __init__(self, path: Path, clock: Clock, *, locked: bool) -> None:
        self.name = f"tiny store in {path.name}"
        self._path = path
        self._clock = clock
        self._locked = locked
        self._connection: sqlite3.Connection

    def clone(self) -> TinyStore:
        return TinyStore(self._path, self._clock, locked=self._locked)

    async def open(self, runtime: Runtime) -> None:
        self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=30, check_same_thread=False)
        for statement in OPENING:
            self._insist(statement)

    def _insist(self, statement: str) -> None:
        """Retry: SQLite does not wait when it enters WAL mode or recovers the log of a killed process."""
        while True:
            try:
                self._connection.execute(statement)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                time.sleep(HESITATION)
            else:
                return

    async def close(self) -> None:
        self._connection.close()

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return [self._apply(request) for request in requests]

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return [self._apply(request) for request in renewals]

    async def settle(self, settlements: Sequence[AnySettlement], **_: Any) -> list[Answer]:
        return [self._apply(request) for request in settlements]

    async def read(self, ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        return [self._apply(Read(id)) for id in ids]

    async def forget(
        self, ids: Sequence[bytes], *, force: bool, seen: Mapping[bytes, ExpectedRecord] | None = None, **_: Any
    ) -> list[Answer]:
        return [self._apply(Forget(id, force, (seen or {}).get(id))) for id in ids]

    async def scan(self, wanted: Filter, *, cursor: bytes | None, limit: int, timeout: float) -> Page:
        rows = self._connection.execute("SELECT record FROM records ORDER BY id LIMIT ?", (limit,)).fetchall()
        return Page([_record(row) for row in rows], None, self._clock.now())

    async def counts(self, *, timeout: float) -> dict[tuple[str, RecordState], int]:
        rows = self._connection.execute("SELECT record FROM records").fetchall()
        return dict(Counter((record.scope, record.state) for record in map(_record, rows)))

    async def audit(self, wanted: AuditFilter, *, limit: int, timeout: float) -> list[AuditEntry]:
        return []  # nothing is signed here

    async def purge(self, limit: int, **_: Any) -> int:
        with self._exclusive():
            rows = self._connection.execute("SELECT record FROM records").fetchall()
            old = [record.id for record in map(_record, rows) if purgeable(record, self._clock.now())][:limit]
            self._connection.executemany("DELETE FROM records WHERE id = ?", [(id,) for id in old])
        return len(old)

    def _apply(self, request: Request) -> Answer:
        with self._exclusive():
            row = self._connection.execute("SELECT record FROM records WHERE id = ?", (request.id,)).fetchone()
            before = None if row is None else _record(row)
            now = self._clock.now()
            after, verdict = outcome(before, request, now)
            if after is not None and after is not before:
                time.sleep(HESITATION)
                row = (request.id, msgspec.msgpack.encode(after))
                self._connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?)", row)
            return Answer(verdict, after, now)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        if not self._locked:
            yield
            return
        self._connection.execute("BEGIN IMMEDIATE")
        yield
        self._connection.execute("COMMIT")


def _record(row: tuple[Any, ...]) -> Record:
    return msgspec.msgpack.decode(row[0], type=Record)
