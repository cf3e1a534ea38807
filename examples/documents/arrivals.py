"""How documents come: as files in a folder, or announced by a webhook. Both may tell of one file, and often."""

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
    """A folder. Move files in, because a rename is one step; they stay there."""

    def __init__(self, documents: Documents, folder: Path) -> None:
        self._documents = documents
        self._folder = folder.resolve()
        self._seen: set[tuple[str, int, int]] = set()
        self._unreadable: set[str] = set()

    def look(self) -> Iterator[tuple[Path, Outcome[dict[str, Any]]]]:
        """Process what is new since the last look; what could not be settled is looked at again."""
        for path in sorted(self._folder.glob("*.pdf")):
            try:
                facts = path.stat()
                known = path.name, facts.st_size, facts.st_mtime_ns
                outcome = None if known in self._seen else self._documents.process(path)
            except OSError as error:  # gone meanwhile, no file, or not ours to read: others do not wait for it
                self._complain(path, error)
                continue
            if outcome is not None:
                if is_settled(outcome):
                    self._seen.add(known)
                yield path, outcome

    def _complain(self, path: Path, error: OSError) -> None:
        if path.name not in self._unreadable:
            self._unreadable.add(path.name)
            logger.error("%s cannot be read, and is left out for now: %s", path.name, error)

    def watch(self, every: float = 1.0) -> None:
        """For ever. While the store is away nothing is processed, and nothing is forgotten."""
        while True:
            try:
                for path, outcome in self.look():
                    print(path.name, outcome.key, outcome, flush=True)
            except StoreError as error:
                print(f"later: {error}", flush=True)
            time.sleep(every)

    def webhook(self, secret: str) -> Webhook:
        """`{"name": "invoice.pdf"}`, signed. An event is known by its id, and its document by the content."""
        return Webhook(self._documents.once, standard(secret), self._announced, name="documents_webhook")

    def _announced(self, event: WebhookEvent) -> Response:
        try:
            path = (self._folder / event.json()["name"]).resolve()
            path.is_file()  # raises if no file can have that name
        except (LookupError, TypeError, ValueError, OSError, MsgspecError):
            path = self._folder
        if path.parent != self._folder:  # it would lead out of the folder
            return Response.json({"reason": "no name of a file"}, status=400)
        if not path.is_file():
            return Response.json(
                {"reason": "the file is not here yet"}, status=503
            )  # sent again, and then looked at again
        outcome = self._documents.process(path)
        return Response.json({"hash": outcome.key, "reason": outcome.kind}, status=200 if is_settled(outcome) else 503)
