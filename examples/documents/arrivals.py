"""How documents arrive: as files in a folder, or announced by a webhook. A file may be reported twice, or by both.

`buckets.py` has the same for object stores.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import MsgspecError

from examples.documents.pipeline import Documents, is_settled
from onceward import Once, Outcome
from onceward.errors import StoreError
from onceward.http.webhooks import Response, Webhook, WebhookEvent, standard
from onceward.observe import Event

WEBHOOK: Final = "documents_webhook"
MAX_REMEMBERED: Final = 10_000
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

    def process_named(self, name: str) -> Outcome[dict[str, Any]] | None:
        """Process the file with this name. Return None if it does not exist. Raise ValueError if it leads elsewhere."""
        try:
            path = (self._folder / name).resolve()
            path.is_file()  # raises if no file can have that name
        except (TypeError, OSError) as error:
            raise ValueError("not a file name") from error
        if path.parent != self._folder:
            raise ValueError("not a file name")
        return self._documents.process(path) if path.is_file() else None


class Arrivals(Protocol):
    """Where documents arrive: a folder, or a bucket."""

    def scan(self) -> Iterator[tuple[Path | str, Outcome[dict[str, Any]]]]: ...
    def process_named(self, name: str) -> Outcome[dict[str, Any]] | None: ...


def watch(arrivals: Arrivals, every: float = 1.0) -> None:
    """Scan forever. While the store is down, nothing is processed, and nothing is lost."""
    while True:
        try:
            for name, outcome in arrivals.scan():
                print(Path(name).name, outcome.key, outcome, flush=True)
        except StoreError as error:
            print(f"retrying later: {error}", flush=True)
        time.sleep(every)


class Announcements:
    """The webhook for signed `{"name": "invoice.pdf"}`. An event is identified by its id.

    `deliveries` has the records of webhook events. On Firestore it is a client of another collection, so that the
    documents' own collection holds documents only.
    """

    def __init__(self, arrivals: Arrivals, deliveries: Once, secret: str) -> None:
        self._arrivals = arrivals
        self._hashes: dict[Any, str] = {}
        """The documents of recent events, for the log."""

        self.endpoint = Webhook(deliveries, standard(secret), self._handle, name=WEBHOOK)
        deliveries.subscribe(self._log)

    def _handle(self, event: WebhookEvent) -> Response:
        try:
            outcome = self._arrivals.process_named(event.json()["name"])
        except (LookupError, TypeError, ValueError, MsgspecError):
            return Response.json({"reason": "not a file name"}, status=400)
        if outcome is None:
            return Response.json({"reason": "the file is not here yet"}, status=503)  # the sender retries
        if len(self._hashes) > MAX_REMEMBERED:
            self._hashes.clear()
        self._hashes[event.id] = outcome.key
        return Response.json({"hash": outcome.key, "reason": outcome.kind}, status=200 if is_settled(outcome) else 503)

    def _log(self, event: Event) -> None:
        """Log an event that was delivered again: its work is skipped, so the pipeline does not log it."""
        if event.name != "skipped" or event.scope.partition("/")[2] != WEBHOOK:
            return
        known = self._hashes.get(event.key, "")
        facts = {"event": "lock_skipped_duplicate", "doc_hash": known, "delivery": event.key}
        logger.info("%s %s by the repeated event %s", *facts.values(), extra=facts)
