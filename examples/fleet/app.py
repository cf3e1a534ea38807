"""The fleet, an ASGI application: `POST /pubsub/push` receives events, `GET /` shows the current state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.fleet.events import Document, Documents
from examples.fleet.handlers import ingest_health, system_events
from onceward import AsyncOnce, InvalidKey
from onceward.http.endpoint import AsyncEndpoint
from onceward.http.messages import InboundRequest, Response, problem
from onceward.http.push import AsyncPubSubPush
from onceward.http.tokens import Check
from onceward.latest import Current

KEEP = "7d"  # as long as Pub/Sub delivers a message again by default
FILES = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
SECURITY_HEADERS = (
    (
        "content-security-policy",
        "default-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("cache-control", "no-store"),
)
"""Blocks content from other sites, and scripts inside events."""


PUSH = "/pubsub/push"


class Fleet(AsyncEndpoint):
    """The whole application, on any store. `check` authenticates pushes; None accepts all.

    `of_pipelines` is a separate client for pipelines, for stores with one collection per kind of document. `topics`
    maps subscriptions to their topics, because a push names only its subscription. With `per_region`, each region of a
    service has its own document.
    """

    def __init__(
        self,
        once: AsyncOnce,
        *,
        of_pipelines: AsyncOnce | None = None,
        check: Check | None = None,
        topics: Mapping[str, str] | None = None,
        per_region: bool = False,
        keep: str = KEEP,
    ) -> None:
        super().__init__()
        self.once = once
        services = once.state("ops_services", Document, window=keep)
        self.services = Documents(services, topics or {}, per_region=per_region)
        pipelines = (of_pipelines or once).state("ops_ingest_pipelines", Document, window=keep)
        self.pipelines = Documents(pipelines, topics or {}, per_region=per_region)
        self.push = AsyncPubSubPush(once, "ops_dedupe", check=check)
        self.push.on(system_events.SystemEvent, claim=False, final=InvalidKey)(system_events.handler(self.services))
        self.push.on(ingest_health.IngestHealth, claim=False, final=InvalidKey)(ingest_health.handler(self.pipelines))

    async def refuse_head(self, request: InboundRequest, length: int) -> Response | None:
        """Refuse pushes without a token, and other methods than GET, before a body is read."""
        if request.path == PUSH:
            return await self.push.refuse_head(request, length)
        if request.method != "GET":
            return problem(405, "method_not_allowed", "only GET is allowed here", [("allow", "GET")])
        return None

    async def handle(self, request: InboundRequest) -> Response:
        if request.path == PUSH:
            return await self.push.respond_to_checked(request)
        if request.path == "/health":
            answer = Response.json(await self.health())
            return Response(answer.status, answer.body, (*answer.headers, *SECURITY_HEADERS))
        return STATIC_RESPONSES.get(request.path) or problem(404, "not_found", "the page does not exist")

    async def health(self) -> dict[str, Any]:
        """Return all current documents, the counts of the last day, and the alerts."""
        tally = await self.once.stats()
        names = ("applied", "replayed", "stale", "rejected")
        return {
            "services": [_as_json(one) for one in await self.services.state.entities()],
            "pipelines": [_as_json(one) for one in await self.pipelines.state.entities()],
            "counts": {name: tally.total(name) for name in names},
            "alerts": [str(broken) for broken in await self.once.check()],
        }


def _as_json(one: Current[Document]) -> Document:
    return {"id": one.entity, **(one.value or {})}


def _static_response(name: str, kind: str) -> Response:
    body = (Path(__file__).parent / "page" / name).read_bytes()
    return Response(200, body, (("content-type", f"{kind}; charset=utf-8"), *SECURITY_HEADERS))


STATIC_RESPONSES = {path: _static_response(*file) for path, file in FILES.items()}
