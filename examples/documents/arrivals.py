"""How documents arrive: as files in a folder, or announced by a webhook. A file may be reported twice, or by both."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import MsgspecError

from examples.documents.pipeline import Documents, is_settled
from onceward import Outcome
from onceward.errors import StoreError
from onceward.http.webhooks import Response, Webhook, WebhookEvent, standard

logger = logging.getLogger("documents")


class Inbox:
    """A folder. Move files in rather than writing them there: a rename is atomic. The files stay there."""

    def __init__(self, documents: Documents, folder: Path) -> None:
        self._documents = documents
        self._folder = folder.resolve()
        self._seen: set[tuple[str, int, int]] = set()
        self._unreadable: set[str] = set()

    def scan(self) -> Iterator[tuple[Path, Outcome[dict[str, Any]]]]:
        """Process the files that are new since the last scan, and those that could not be settled."""
        for path in sorted(self._folder.glob("*.pdf")):
            try:
                facts = path.stat()
                known = path.name, facts.st_size, facts.st_mtime_ns
                outcome = None if known in self._seen else self._documents.process(path)
            except (
                OSError
            ) as error:  # deleted in between, not a file, or not readable: the other files do not wait for it
                self._log_once(path, error)
                continue
            if outcome is not None:
                if is_settled(outcome):
                    self._seen.add(known)
                yield path, outcome

    def _log_once(self, path: Path, error: OSError) -> None:
        if path.name not in self._unreadable:
            self._unreadable.add(path.name)
            logger.error("%s cannot be read and is skipped for now: %s", path.name, error)

    def watch(self, every: float = 1.0) -> None:
        """Scan forever. While the store is down, nothing is processed, and nothing is lost."""
        while True:
            try:
                for path, outcome in self.scan():
                    print(path.name, outcome.key, outcome, flush=True)
            except StoreError as error:
                print(f"retrying later: {error}", flush=True)
            time.sleep(every)

    def webhook(self, secret: str) -> Webhook:
        """Return the endpoint for signed `{"name": "invoice.pdf"}`. An event is identified by its id."""
        return Webhook(self._documents.once, standard(secret), self._handle, name="documents_webhook")

    def _handle(self, event: WebhookEvent) -> Response:
        try:
            path = (self._folder / event.json()["name"]).resolve()
            path.is_file()  # raises if no file can have that name
        except (LookupError, TypeError, ValueError, OSError, MsgspecError):
            path = self._folder
        if path.parent != self._folder:  # it would leave the folder
            return Response.json({"reason": "not a file name"}, status=400)
        if not path.is_file():
            return Response.json({"reason": "the file is not here yet"}, status=503)  # the sender retries
        outcome = self._documents.process(path)
        return Response.json({"hash": outcome.key, "reason": outcome.kind}, status=200 if is_settled(outcome) else 503)
