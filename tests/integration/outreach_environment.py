"""The external services and any number of workers of examples/outreach, on one file and one clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session

from examples.outreach.app import Outreach
from examples.outreach.evidence import AuditData
from examples.outreach.outside import Outside
from onceward.stores.sqlite import SQLiteStore
from onceward.testing import FakeClock
from tests.clients import Pause

ANNA = {"name": "Anna Osterholt", "email": "anna@osterholt.example", "city": "Bremen", "country": "Germany"}
BORIS = {"name": "Boris Wrona", "email": "boris@wrona.example", "city": "Gdansk", "country": "Poland"}


class Environment:
    """`outside` can be made to misbehave; each `worker()` behaves like another process."""

    def __init__(self, folder: Path, outside: Outside, clock: FakeClock) -> None:
        self.folder = folder
        self.outside = outside
        self.clock = clock
        self.database = f"sqlite:///{folder}/outreach.db?synchronous=NORMAL"
        self._workers: list[Outreach] = []

    def worker(self) -> Outreach:
        store = SQLiteStore(self.folder / "outreach.db", clock=self.clock, synchronous="NORMAL")
        worker = Outreach(
            self.database, smtp=self.outside.smtp, api=self.outside.api, store=store, clock=self.clock, wait="20s"
        )
        self._workers.append(worker)
        return worker

    @property
    def data(self) -> AuditData:
        return AuditData(self.database, self.folder / "outside.db")

    def rows(self, statement: str) -> list[Any]:
        """Query the system's own tables; return single values where there is one column."""
        return [row[0] if len(row) == 1 else row for row in self.data.rows(statement)]

    def kept(self, statement: str) -> list[Any]:
        """Query what the external services have stored."""
        return [row[0] if len(row) == 1 else row for row in self.outside.execute(statement)]

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


@contextmanager
def opened(folder: Path, kind: Callable[..., Outside] = Outside) -> Iterator[Environment]:
    clock = FakeClock()
    with kind(folder / "outside.db", clock=clock) as outside:
        env = Environment(folder, outside, clock)
        try:
            yield env
        finally:
            env.close()


class Paused(Outside):
    """Stops in the middle of each mail until the test lets it continue."""

    def __init__(self, *args: Any, **choices: Any) -> None:
        super().__init__(*args, **choices)
        self.pause = Pause()

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 (aiosmtpd's name)
        await asyncio.to_thread(self.pause.here)
        return await super().handle_DATA(server, session, envelope)


class AbortsConnections(Outside):
    """Aborts the connection instead of accepting a mail, as long as `aborts` is set."""

    aborts = True

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 (aiosmtpd's name)
        if self.aborts:
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.abort()
            return "451 never sent"
        return await super().handle_DATA(server, session, envelope)


class DiesWhileReplying(Outside):
    """Accepts a mail and closes the connection in the middle of its reply, as long as `partial_reply` is set."""

    partial_reply = b""

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 (aiosmtpd's name)
        answer = await super().handle_DATA(server, session, envelope)
        if self.partial_reply:
            assert isinstance(server.transport, asyncio.Transport)
            server.transport.write(self.partial_reply)
            server.transport.close()  # after sending what was written
        return answer


class RejectsQuit(Outside):
    """Accepts mails, and rejects the client's QUIT."""

    async def handle_QUIT(self, _server: SMTP, _session: Session, _envelope: Envelope) -> str:  # noqa: N802 (aiosmtpd's name)
        return "421 go away"
