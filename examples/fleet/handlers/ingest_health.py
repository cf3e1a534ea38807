"""Ingest health: a pipeline tells how far behind it is. They become documents of `ops_ingest_pipelines`."""

from __future__ import annotations

from examples.fleet.events import Document, Documents, Handler, Name, Reported
from onceward import Outcome
from onceward.http.push import PushMessage


class IngestHealth(Reported, kw_only=True):
    """The shape: it has a `pipeline`, and says by how many seconds that lags."""

    pipeline: Name
    lag_seconds: float


def handler(pipelines: Documents) -> Handler:
    async def handle(message: PushMessage[IngestHealth]) -> Outcome[Document]:
        event = message.payload
        facts = {"pipelineId": event.pipeline, "lagSeconds": event.lag_seconds}
        return await pipelines.keep(message, event.pipeline, "ingest_health", facts)

    return handle
