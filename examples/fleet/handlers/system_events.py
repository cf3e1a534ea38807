"""System events: a service reports its status. The events become documents of `ops_services`."""

from __future__ import annotations

from examples.fleet.events import BaseEvent, Document, Documents, Handler, Name
from onceward import Outcome
from onceward.http.push import PushMessage


class SystemEvent(BaseEvent, kw_only=True):
    """An event with a `service`."""

    service: Name


def handler(services: Documents) -> Handler:
    async def handle(message: PushMessage[SystemEvent]) -> Outcome[Document]:
        service = message.payload.service
        return await services.apply(message, service, "system_event", {"serviceId": service})

    return handle
