"""Ingest health: a pipeline reports its lag. The events become documents of `ops_ingest_pipelines`."""

from __future__ import annotations

from examples.fleet.events import BaseEvent, Document, Documents, Handler, Name
from onceward import Outcome
from onceward.http.push import PushMessage


class IngestHealth(BaseEvent, kw_only=True):
    """An event with a `pipeline` and its lag in seconds."""

    pipeline: Name
    lag_seconds: float


def handler(pipelines: Documents) -> Handler:
    async def handle(message: PushMessage[IngestHealth]) -> Outcome[Document]:
        event = message.payload
        facts = {"pipelineId": event.pipeline, "lagSeconds": event.lag_seconds}
        return await pipelines.apply(message, event.pipeline, "ingest_health", facts)

    return handle
