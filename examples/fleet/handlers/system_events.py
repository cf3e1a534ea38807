"""System events: a service tells how it is. They become documents of `ops_services`."""

from __future__ import annotations

from examples.fleet.events import Document, Documents, Handler, Name, Reported
from onceward import Outcome
from onceward.http.push import PushMessage


class SystemEvent(Reported, kw_only=True):
    """The shape: it has a `service`."""

    service: Name


def handler(services: Documents) -> Handler:
    async def handle(message: PushMessage[SystemEvent]) -> Outcome[Document]:
        service = message.payload.service
        return await services.keep(message, service, "system_event", {"serviceId": service})

    return handle
