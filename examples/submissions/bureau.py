"""A fake credit bureau: an HTTP server whose responses cost money and sometimes get lost.

It bills a key once: a request with a known `Idempotency-Key` gets the first response again, for free.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REFUSE_EVERY, LOSE_EVERY = 23, 17  # every 23rd request is refused, every 17th is billed without a response


def score_of(company: str) -> int:
    """Return a score between 80 and 140, always the same for one company."""
    return 80 + zlib.crc32(company.encode()) % 61


class Bureau(ThreadingHTTPServer):
    """`POST /scores {risk, company}`; `GET /ledger`: every charge, for the audit."""

    daemon_threads = True

    def __init__(self, *, calm: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.calm = calm
        self.requests = 0
        self.ledger: list[dict[str, str]] = []
        self._answers: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def bill(self, key: str, asked: dict[str, str]) -> tuple[int, dict[str, Any], bool]:
        """Return status, body, and whether the response gets lost."""
        with self._lock:
            self.requests += 1
            number = 0 if self.calm else self.requests
            if number and number % REFUSE_EVERY == 0:
                return 503, {"error": "busy"}, False
            if key not in self._answers:
                charge = f"charge {len(self.ledger) + 1}"
                self.ledger.append({"charge": charge, "risk": asked["risk"]})
                self._answers[key] = {"score": score_of(asked["company"]), "charge": charge}
            return 200, self._answers[key], bool(number) and number % LOSE_EVERY == 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: a killed client does not read its response."""


class _Handler(BaseHTTPRequestHandler):
    @property
    def _bureau(self) -> Bureau:
        assert isinstance(self.server, Bureau)
        return self.server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer, lost = self._bureau.bill(self.headers["Idempotency-Key"], asked)
        if lost:
            self.close_connection = True
        else:
            self._respond(status, answer)

    def do_GET(self) -> None:
        self._respond(200, {"requests": self._bureau.requests, "ledger": self._bureau.ledger})

    def _respond(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name in the standard library)
        """Do nothing: a storm has too many requests to log."""


@contextmanager
def bureau(*, calm: bool = False) -> Iterator[Bureau]:
    """Run the bureau inside the block. `calm`: it always responds."""
    with Bureau(calm=calm) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
