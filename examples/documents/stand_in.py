"""A local simulation of the models' API: an HTTP server that answers from rules, makes mistakes, and sends 429s."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from examples.documents.models import CHEAP

FIELDS: Final = {
    "id": r"Invoice (\S+)",
    "company": r"Company (.+?) Date",
    "date": r"Date (\S+)",
    "cents": r"Total (\d+)",
}
GERMAN: Final = re.compile(r"(\d\d)\.(\d\d)\.(\d{4})")

Rules = Callable[[str, list[str]], str]
"""Returns a model's answer to a conversation."""


def rules(model: str, turns: list[str]) -> str:
    """Answer as the model would. The cheap one copies printed dates until corrected, and does not add up totals."""
    text, complaint = turns[0].partition("\n\n")[2], turns[-1] if len(turns) > 1 else ""
    found: dict[str, Any] = {
        name: match.group(1) if (match := re.search(pattern, text)) else "" for name, pattern in FIELDS.items()
    }
    if model != CHEAP or "date" in complaint:
        found["date"] = GERMAN.sub(r"\3-\2-\1", found["date"])
    items = [int(cents) for cents in re.findall(r"Item (\d+)", text)]
    found["cents"] = int(found["cents"] or (sum(items) if model != CHEAP else 0))
    time.sleep(sum(float(seconds) for seconds in re.findall(r"Takes (\S+)", text)))
    return msgspec.json.encode(found).decode()


@contextmanager
def stand_in(log: Path, *, busy_every: int = 5, retry_after: int = 0, rules: Rules = rules) -> Iterator[str]:
    """Run the server, and yield its URL. `log` gets a line per request: status, model, hash of the conversation."""
    numbers, log_lock = count(1), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            model = self.path.rpartition("/")[2].partition(":")[0]
            request = self.rfile.read(int(self.headers["Content-Length"]))
            turns = [one["parts"][0]["text"] for one in msgspec.json.decode(request)["contents"]]
            status = 429 if busy_every and next(numbers) % busy_every == 0 else 200
            answer = rules(model, turns) if status == 200 else ""
            with log_lock, log.open("a", encoding="utf-8") as calls:
                calls.write(f"{status} {model} {hashlib.sha256(request).hexdigest()}\n")
            reply = msgspec.json.encode({"candidates": [{"content": {"parts": [{"text": answer}]}}]})
            self.send_response(status)
            self.send_header("Retry-After", str(retry_after))
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name in the base class)
            """Do nothing: requests are logged above."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignore errors: the client was killed."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
