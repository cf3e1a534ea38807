"""The stores of a fleet: one URL is enough; on Firestore, each kind of document gets its own collection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from examples.fleet.app import Fleet
from onceward import AsyncOnce

LAYOUT = {
    "ids": "entity",
    "mark_ids": "plain",
    "values": "shown",
    "state_fields": "",
    "mark_fields": "trace:messageId,created_at:createdAt",
    "expiry": "expireAt",
}
"""Documents that people and other programs read: `prod__billing` with its members as fields."""


class StoreUrls(NamedTuple):
    """The stores of services and pipelines. They are the same, except on Firestore."""

    services: str
    pipelines: str


def store_urls(url: str) -> StoreUrls:
    """Return the stores for a URL. `firestore://project/ops` has `ops_dedupe`, `ops_services` and so on."""
    if not url.startswith("firestore:"):
        return StoreUrls(url, url)
    prefix = urlsplit(url).path.removeprefix("/")
    return StoreUrls(*(_with_layout(url, prefix, kind) for kind in ("services", "ingest_pipelines")))


def _with_layout(url: str, prefix: str, kind: str) -> str:
    parts = urlsplit(url)
    settings = {**LAYOUT, "marks": f"{prefix}_dedupe", "states": f"{prefix}_{kind}", **dict(parse_qsl(parts.query))}
    query = "&".join(f"{name}={quote(value, safe=':,')}" for name, value in settings.items())
    return urlunsplit(parts._replace(query=query))


@asynccontextmanager
async def opened_fleet(url: str, *, app: str = "fleet", counters: bool = False, **choices: Any) -> AsyncIterator[Fleet]:
    """Open the stores, create what they need, and yield the fleet."""
    urls = store_urls(url)
    async with AsyncOnce(urls.services, app=app, counters=counters) as once:
        await once.migrate()
        if urls.pipelines == urls.services:
            yield Fleet(once, **choices)
            return
        async with AsyncOnce(urls.pipelines, app=app) as of_pipelines:
            yield Fleet(once, of_pipelines=of_pipelines, **choices)
