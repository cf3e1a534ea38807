"""How documents come: as files in a folder, or announced by a webhook. Both may tell of one file, and often."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import MsgspecError

from examples.documents.pipeline import Documents, is_settled
from onceward import Outcome, StoreError
from onceward.http.webhooks import Answer, Webhook, WebhookEvent, standard


class Inbox:
    """A folder. Move files in, because a rename is one step; they stay there."""

    def __init__(self, documents: Documents, folder: Path) -> None:
        self._documents = documents
        self._folder = folder.resolve()
        self._seen: set[tuple[str, int, int]] = set()

    def look(self) -> Iterator[tuple[Path, Outcome[dict[str, Any]]]]:
        """Process what is new since the last look; what could not be settled is looked at again."""
        for path in sorted(self._folder.glob("*.pdf")):
            facts = path.stat()
            known = path.name, facts.st_size, facts.st_mtime_ns
            if known not in self._seen:
                outcome = self._documents.process(path)
                if is_settled(outcome):
                    self._seen.add(known)
                yield path, outcome

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

    def _announced(self, event: WebhookEvent) -> Answer:
        try:
            path = (self._folder / event.json()["name"]).resolve()
        except (LookupError, TypeError, ValueError, MsgspecError):
            path = self._folder
        if path.parent != self._folder:  # it would lead out of the folder
            return Answer.json({"reason": "no name of a file"}, status=400)
        if not path.is_file():
            return Answer.json(
                {"reason": "the file is not here yet"}, status=503
            )  # sent again, and then looked at again
        outcome = self._documents.process(path)
        return Answer.json({"hash": outcome.key, "reason": outcome.kind}, status=200 if is_settled(outcome) else 503)
