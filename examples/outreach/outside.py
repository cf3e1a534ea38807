"""Simulations of the external systems: a mail server, a directory, a bank and a pager. They store what they receive.

The mail server speaks real SMTP, and stores a mail twice if it receives it twice. The bank and the pager accept an
idempotency key, and process each key once. They also count all requests.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from concurrent.futures import Future
from contextlib import closing
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from aiosmtpd.smtp import SMTP, Envelope, Session

from onceward.protocol.ports import Clock
from onceward.stores.clock import WallClock

TABLES = """
CREATE TABLE IF NOT EXISTS mails (at INTEGER, message_id TEXT, recipient TEXT, prospect TEXT, token INTEGER, raw BLOB);
CREATE INDEX IF NOT EXISTS by_message_id ON mails (message_id);
CREATE TABLE IF NOT EXISTS lookups (at INTEGER, type TEXT, prospect TEXT);
CREATE TABLE IF NOT EXISTS charges (key TEXT PRIMARY KEY, what TEXT, asked INTEGER);
CREATE TABLE IF NOT EXISTS alerts (key TEXT PRIMARY KEY, what TEXT, asked INTEGER);
"""
COUNT_REQUEST = "INSERT INTO {0} VALUES (?, ?, 1) ON CONFLICT (key) DO UPDATE SET asked = asked + 1"


class Outside:
    """`with Outside(file) as outside:` runs the servers in threads. `smtp` and `api` are their addresses."""

    def __init__(self, file: Path, *, clock: Clock | None = None, slowness: float = 0.0, loses_every: int = 0) -> None:
        self.file = file
        self.clock = clock or WallClock()
        self.slowness = slowness  # seconds that the mail server needs for a mail
        self._served = count(1)
        self._loses_every = loses_every  # lose every n-th reply of the mail server, the bank and the pager
        self.smtp = self.api = ""
        self.can_tell = True
        self.directory_is_up = True
        self.refuses_mail = False
        self.loses_answers = False  # requests are processed, but the reply is lost
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._database = sqlite3.connect(self.file, check_same_thread=False, isolation_level=None)
        self._database.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; {TABLES}")
        self._server = ApiServer(("127.0.0.1", 0), ApiHandler)
        self._server.outside = self
        self.api = f"http://127.0.0.1:{self._server.server_address[1]}"
        address: Future[str] = Future()
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True),
            threading.Thread(target=asyncio.run, args=(self._serve_smtp(address),), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self.smtp = address.result()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._loop.call_soon_threadsafe(self._closing.set)
        for thread in self._threads:
            thread.join()
        self._database.close()

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._database.execute(statement, values).fetchall()

    def loses_an_answer(self) -> bool:
        return self.loses_answers or bool(self._loses_every and next(self._served) % self._loses_every == 0)

    # ── the mail server ──

    async def _serve_smtp(self, address: Future[str]) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(lambda: SMTP(self, hostname="mail.example"), "127.0.0.1", 0)
        address.set_result(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await self._closing.wait()
        server.close()

    async def handle_RCPT(  # noqa: N802 (aiosmtpd's name)
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address.startswith("unknown@"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802 (aiosmtpd's name)
        if self.refuses_mail:
            return "450 not now"
        await asyncio.sleep(self.slowness)
        raw = envelope.original_content or b""
        mail = BytesParser().parsebytes(raw, headersonly=True)
        self.execute(
            "INSERT INTO mails VALUES (?, ?, ?, ?, ?, ?)",
            self.clock.now(),
            mail["Message-ID"],
            mail["To"],
            mail["X-Prospect"],
            int(mail["X-Token"] or 0),
            raw,
        )
        if self.loses_an_answer() and isinstance(server.transport, asyncio.Transport):
            server.transport.abort()
        return "250 kept"

    def has_sent(self, message_id: str) -> bool:
        return bool(self.execute("SELECT 1 FROM mails WHERE message_id = ? LIMIT 1", message_id))


class ApiServer(ThreadingHTTPServer):
    """The HTTP server of the directory, the bank, the pager, and of the mail server's records."""

    daemon_threads = True
    outside: Outside

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: the client was killed."""


class ApiHandler(BaseHTTPRequestHandler):
    """`/sent/MESSAGE-ID`, `/directory/TYPE/PROSPECT`, and with an Idempotency-Key `/charges` and `/alerts`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def outside(self) -> Outside:
        assert isinstance(self.server, ApiServer)
        return self.server.outside

    def do_GET(self) -> None:
        outside = self.outside
        what, *rest = map(unquote, self.path.strip("/").split("/"))
        if what == "sent" and outside.can_tell:
            self._answer(200, {"sent": outside.has_sent(rest[0])})
        elif what == "directory":
            kind, prospect = rest
            outside.execute("INSERT INTO lookups VALUES (?, ?, ?)", outside.clock.now(), kind, prospect)
            found = f"https://{prospect}.example" if kind == "website" else f"office@{prospect}.example"
            self._answer(200, {"found": found}) if outside.directory_is_up else self._answer(503, {})
        else:
            self._answer(503, {})

    def do_POST(self) -> None:
        outside, table = self.outside, self.path.strip("/")
        size, key = int(self.headers["Content-Length"]), self.headers["Idempotency-Key"]
        body = self.rfile.read(size).decode()
        if (
            table not in ("charges", "alerts") or not key or len(body.encode()) < size
        ):  # the client may have crashed while sending
            self._answer(400, {})
            return
        outside.execute(COUNT_REQUEST.format(table), key, body)
        if outside.loses_an_answer():
            self.close_connection = True
            return
        self._answer(200, {"receipt": key[:12]})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 (http.server's name)
        """Do not log requests."""


def query_outside(file: Path, statement: str) -> list[tuple[Any, ...]]:
    """Read what the external systems received, with plain sqlite3. This works after they are closed, too."""
    with closing(sqlite3.connect(file)) as database:
        return database.execute(statement).fetchall()
