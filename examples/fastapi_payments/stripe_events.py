"""Apply Stripe's events to payments: each event once, together with its record."""

from __future__ import annotations

from msgspec import Struct
from sqlalchemy import update

from onceward import current_async_claim
from onceward.http.webhooks import WebhookEvent

from .database import Database, Payment

STATUSES = {"charge.refunded": "refunded", "charge.dispute.created": "disputed"}


class ChargeObject(Struct):
    """The part of Stripe's charge that is needed here."""

    id: str


class EventData(Struct):
    """What the event is about."""

    object: ChargeObject


class StripeEvent(Struct):
    """The part of an event that is needed here."""

    data: EventData


class StripeEvents:
    """The handler of the webhook."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def apply(self, event: WebhookEvent) -> None:
        status = STATUSES.get(event.type)
        if status is None:
            return
        charge = event.json(StripeEvent).data.object.id
        async with self._database.sessions.begin() as session:
            await session.execute(update(Payment).where(Payment.charge == charge).values(status=status))
            await current_async_claim().complete_in(session)
