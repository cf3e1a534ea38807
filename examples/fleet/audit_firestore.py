"""The documents of a storm on Firestore, read with Google's client.

Firestore keeps no log of writes, so this audit sees only the last write of each document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from examples.fleet.audit_database import State
from examples.fleet.stores import store_urls
from onceward.testing.storm import StormSetting

KINDS = {"services": "ops_services", "ingest_pipelines": "ops_ingest_pipelines"}


class FirestoreAudit:
    """The collections of one run, `fleet_{run}_…`, through Google's own client."""

    def __init__(self, setting: StormSetting) -> None:
        from google.cloud import firestore  # takes a second to import

        parts = urlsplit(setting.store)
        self._prefix = f"fleet_{setting.run}"
        self.url = parts._replace(path=f"/{self._prefix}").geturl()
        self.app = f"fleet-{setting.run}"
        database = dict(pair.split("=", 1) for pair in parts.query.split("&") if pair).get("database")
        self._client: Any = firestore.Client(project=parts.netloc, database=database)
        store_urls(self.url)  # fails early if the URL is wrong

    def create_triggers(self) -> None: ...

    def write(self, state: State, document: dict[str, Any]) -> None:
        """Write a state as a first version of such a consumer often does: the last arrival wins."""
        suffix = next(suffix for suffix, kind in KINDS.items() if kind == state[0])
        self._client.collection(f"{self._prefix}_{suffix}").document(state[1]).set(document)

    def writes(self) -> list[tuple[State, dict[str, Any]]]:
        """Return the last write of every state."""
        return [
            ((kind, one.id), one.to_dict() or {})
            for suffix, kind in KINDS.items()
            for one in self._client.collection(f"{self._prefix}_{suffix}").stream()
        ]

    def messages(self, like: str) -> list[str]:
        """Return the message ids of all marks. A message with a new event has two marks."""
        found = (one.to_dict() or {} for one in self._client.collection(f"{self._prefix}_dedupe").stream())
        return [one["messageId"] for one in found if one["messageId"].startswith(like.removesuffix("%"))]

    def close(self) -> None:
        self._client.close()

    def drop_triggers(self) -> None:
        """Delete the documents of this run."""
        writer = self._client.bulk_writer()
        for one in self._documents():
            writer.delete(one.reference)
        writer.close()

    def _documents(self) -> Iterator[Any]:
        for suffix in ("dedupe", *KINDS):
            yield from self._client.collection(f"{self._prefix}_{suffix}").stream()
