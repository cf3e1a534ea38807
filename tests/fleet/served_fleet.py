"""The example fleet under a real server, with pushes as Pub/Sub sends them."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.fleet.app import Fleet
from examples.fleet.stores import StoreUrls, store_urls
from onceward import Once
from tests.endpoints.helpers import asgi_served
from tests.servers.firestore import shared as shared_firestore
from tests.servers.postgres import URL, schema_of

ROOT = Path(__file__).resolve().parents[2]
BILLING = "prod__billing"
BEAT_6 = "2025-03-01T08:00:06Z"
PUSHES = 10
"""How often a message is delivered again at most: a conflict on Firestore's emulator may outlast a call."""
STORES = ["sqlite", "postgres", "firestore"]
APPLIED = (200, True, "applied")
SAME_MESSAGE = (200, False, "duplicate_message_noop")
SAME_EVENT = (200, False, "duplicate_event_noop")
STALE = (200, False, "stale_event_ignored")
MISMATCH = (200, False, "event_mismatch")


def store_url(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty store of this kind."""
    if kind == "sqlite":
        return f"sqlite:///{folder / 'fleet.db'}?synchronous=NORMAL"
    if kind == "firestore":
        shared_firestore()
        return firestore_url(folder, "fleet")
    request.getfixturevalue("postgres")
    return f"{os.environ[URL]}?schema={schema_of(folder)}&migrate=1"


def firestore_url(folder: Path, name: str) -> str:
    """Return the URL of collections for this test only."""
    return f"firestore://onceward-test/{name}-{folder.parent.name}-{folder.name}"[:140]


class Served:
    """A fleet behind a real server."""

    def __init__(self, fleet: Fleet, once: Once, http: httpx.Client, *, repeats: bool = False) -> None:
        self.fleet = fleet
        self._repeats = repeats
        self.once = once
        self.http = http

    def post(self, body: bytes, path: str = "/pubsub/push") -> httpx.Response:
        """Post it. On a slow store, deliver it again as Pub/Sub does, while the answer asks for that."""
        return self._deliver(body, path)[0]

    def _deliver(self, body: bytes, path: str) -> tuple[httpx.Response, int]:
        """Post it, and return the last answer and how often it was delivered."""
        answer, deliveries = self.http.post(path, content=body), 1
        while self._repeats and deliveries <= PUSHES and "retry-after" in answer.headers:
            answer, deliveries = self.http.post(path, content=body), deliveries + 1
        return answer, deliveries

    def push(self, payload: dict[str, Any], id: str, published: str = "2025-03-01T08:30:00Z") -> tuple[int, Any, Any]:
        """Push it and return the status and the reason of the response.

        If the store applied it but its reply was lost, the next delivery is a duplicate: that counts as applied.
        """
        answer, deliveries = self._deliver(envelope(json.dumps(payload).encode(), id, published), "/pubsub/push")
        said = answer.json() if answer.content else {}
        result = answer.status_code, said.get("applied"), said.get("reason", said.get("code"))
        return APPLIED if deliveries > 1 and result == SAME_MESSAGE and self._is_current(id) else result

    def _is_current(self, id: str) -> bool:
        """Return whether a document has the content of this message."""
        shown = self.http.get("/health").raise_for_status().json()
        return any(one["source"]["messageId"] == id for one in (*shown["services"], *shown["pipelines"]))

    def health(self) -> dict[str, Any]:
        """Return what the page shows. Counts are written once a minute; write them now instead of waiting."""
        assert self.once.counters is not None
        assert self.once.counters.write()
        found: dict[str, Any] = self.http.get("/health").raise_for_status().json()
        return found

    def services(self) -> dict[str, dict[str, Any]]:
        return {one["id"]: one for one in self.health()["services"]}

    def known(self, entity: str, **named: str) -> Any:
        return self.once.state("ops_services").known(entity, **named)


@contextmanager
def served(store: Any, **choices: Any) -> Iterator[Served]:
    urls = store_urls(store) if isinstance(store, str) else StoreUrls(store, store)
    with Once(urls.services, app="fleet", counters=True) as once, ExitStack() as more:
        if urls.pipelines != urls.services:
            choices["of_pipelines"] = more.enter_context(Once(urls.pipelines, app="fleet")).aio
        fleet = Fleet(once.aio, **choices)
        with asgi_served(fleet) as url, httpx.Client(base_url=url, timeout=30) as http:
            yield Served(fleet, once, http, repeats=str(urls.services).startswith("firestore:"))


def beat(second: int, **more: Any) -> dict[str, Any]:
    """Return a system event of billing."""
    event = {"service": "billing", "env": "prod", "status": "ok", "producedAt": f"2025-03-01T08:00:{second:02}Z"}
    return {**event, **more}


def envelope(data: bytes, id: str | None, published: str = "2025-03-01T08:30:00Z") -> bytes:
    inner = {"data": base64.b64encode(data).decode(), "publishTime": published}
    if id is not None:
        inner["messageId"] = id
    return json.dumps({"message": inner, "subscription": "projects/demo/subscriptions/fleet"}).encode()


@pytest.fixture(params=STORES)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    with served(store_url(request.param, tmp_path, request)) as found:
        yield found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Served]:
    with served(f"sqlite:///{tmp_path / 'fleet.db'}?synchronous=NORMAL") as found:
        yield found
