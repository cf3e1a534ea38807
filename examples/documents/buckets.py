"""Documents in an object store: `gs://…`, `s3://…` or `file:///…`, listed, or announced by notifications.

Google Cloud Storage publishes a notification for each new object to Pub/Sub, which pushes it here at least once. No
record is kept for a notification: the document itself is recognised by its content, and each duplicate is logged.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from examples.documents.pipeline import Documents, is_settled
from onceward import Executed, Failed, Once, Outcome, Stale
from onceward.http.push import PubSubPush, PushMessage
from onceward.http.tokens import Check
from onceward.objects import Objects

FINALIZED: Final = "OBJECT_FINALIZE"
OTHER_EVENTS: Final = ("OBJECT_METADATA_UPDATE", "OBJECT_DELETE", "OBJECT_ARCHIVE")
logger = logging.getLogger("documents")


class Bucket:
    """The PDF objects below a URL. They are read into a temporary file and stay where they are."""

    def __init__(self, documents: Documents, objects: Objects) -> None:
        self._documents = documents
        self._objects = objects
        self._seen: set[str] = set()

    def process_named(self, name: str) -> Outcome[dict[str, Any]] | None:
        """Process the object with this name. Return None if it does not exist. Raise ValueError for invalid names."""
        with tempfile.TemporaryDirectory(prefix="onceward-documents-") as folder:
            path = Path(folder, "document.pdf")
            try:
                with path.open("wb") as file:
                    for piece in self._objects.pieces(name):
                        file.write(piece)
            except FileNotFoundError:
                return None
            return self._documents.process(path, f"{self._objects.name}/{name}")

    def scan(self) -> Iterator[tuple[str, Outcome[dict[str, Any]]]]:
        """Process the objects that are new since the last scan, and those that could not be settled.

        An object that was replaced under its name is noticed by its notification, or by the next process.
        """
        for name in sorted(self._objects.names()):
            if name in self._seen or not name.lower().endswith(".pdf"):
                continue
            outcome = self.process_named(name)
            if outcome is not None:
                if is_settled(outcome):
                    self._seen.add(name)
                yield name, outcome

    def push(self, once: Once, check: Check | None = None) -> PubSubPush:
        """Return the endpoint for notifications of new objects. `check` authenticates Pub/Sub."""
        endpoint = PubSubPush(once, "documents_push", check=check)
        endpoint.on(attributes={"eventType": FINALIZED}, claim=False)(self._notified)
        for kind in OTHER_EVENTS:
            endpoint.on(attributes={"eventType": kind}, claim=False)(_ignore)
        return endpoint

    def _notified(self, message: PushMessage[Any]) -> Outcome[Any]:
        place = urlsplit(self._objects.name)
        prefix = place.path.strip("/")
        bucket, name = message.attributes.get("bucketId", ""), message.attributes.get("objectId", "")
        below = name.removeprefix(f"{prefix}/") if prefix else name
        if bucket != place.netloc or (prefix and below == name) or not name.lower().endswith(".pdf"):
            return Stale(key=name, reason="other_object_ignored")
        try:
            outcome = self.process_named(below)
        except ValueError:  # a name with `..`, for example
            return Stale(key=name, reason="invalid_name_ignored")
        if outcome is None:
            return Stale(key=name, reason="object_is_gone")
        if isinstance(outcome, Failed) and is_settled(outcome):
            return Executed(key=outcome.key, reason="failed_permanently")  # recorded; another delivery changes nothing
        return outcome


def _ignore(message: PushMessage[Any]) -> Outcome[Any]:
    return Stale(key=message.id, reason="event_ignored")
