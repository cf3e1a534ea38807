"""The payment API: retries, concurrent duplicates, declined cards, lost replies, and Stripe's events."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from examples.fastapi_payments.app import Settings, create_app
from examples.fastapi_payments.card_network import StandInNetwork
from examples.fastapi_payments.database import Database
from tests.servers.postgres import Postgres, new_database

SECRET = "whsec_test"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/payments.db"
    server: Postgres = request.getfixturevalue("postgres")
    return new_database(server, "payments")


class Api:
    """A running API, with its client and the stand-in of the card network."""

    def __init__(self, client: httpx.AsyncClient, network: StandInNetwork, url: str) -> None:
        self.client = client
        self.network = network
        self._url = url

    async def pay(self, cents: int, key: str = "k1", token: str = "a-token") -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": f'"{key}"'}
        return await self.client.post("/payments", json={"cents": cents}, headers=headers)

    async def rows(self) -> list[Any]:
        """Return the payments, by plain SQL."""
        database = Database(self._url)
        async with database.opened(), database.sessions() as session:
            return [*await session.execute(text("SELECT cents, charge, status FROM payments ORDER BY id"))]

    async def stripe(self, event: dict[str, Any], *, secret: str = SECRET) -> int:
        body = json.dumps(event)
        now = int(time.time())
        signature = hmac.new(secret.encode(), f"{now}.{body}".encode(), hashlib.sha256).hexdigest()
        headers = {"Stripe-Signature": f"t={now},v1={signature}"}
        return (await self.client.post("/hooks/stripe", content=body, headers=headers)).status_code


@asynccontextmanager
async def running(url: str) -> AsyncIterator[Api]:
    network = StandInNetwork()
    settings = Settings(url, {"a-token": "alice", "b-token": "bob"}, SECRET)
    app = create_app(settings, network.client())
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client,
    ):
        yield Api(client, network, url)


@pytest.mark.finding("N4")
async def test_a_payment_is_made_once_however_often_it_is_sent(database_url: str) -> None:
    async with running(database_url) as api:
        replies = await asyncio.gather(*(api.pay(1999) for _ in range(10)))
        first, again = await api.pay(1999), await api.pay(1999)
        assert {reply.status_code for reply in replies} <= {201, 409}
        assert first.json() == {"id": 1, "cents": 1999, "charge": "ch_1", "status": "charged"}
        assert again.content == first.content
        assert (await api.pay(2000)).status_code == 422
        assert (await api.pay(1999, token="b-token")).json()["charge"] == "ch_2"
        assert (await api.pay(1999, token="unknown")).status_code == 401
        assert await api.rows() == [(1999, "ch_1", "charged"), (1999, "ch_2", "charged")]


async def test_a_lost_reply_of_the_card_network_is_neither_a_second_charge_nor_a_lost_payment(
    database_url: str,
) -> None:
    async with running(database_url) as api:
        api.network.lose_replies = 1
        assert [(await api.pay(500)).status_code for _ in range(3)] == [503, 201, 201]
        assert len(api.network.charges) == 1
        assert await api.rows() == [(500, "ch_1", "charged")]


async def test_a_declined_card_is_answered_and_writes_nothing(database_url: str) -> None:
    async with running(database_url) as api:
        replies = [await api.pay(100_001) for _ in range(2)]
        assert [reply.status_code for reply in replies] == [402, 402]
        assert replies[1].headers["Idempotency-Replayed"] == "true"
        assert await api.rows() == []


async def test_an_event_of_stripe_is_applied_once(database_url: str) -> None:
    event = {"id": "evt_1", "type": "charge.refunded", "data": {"object": {"id": "ch_1"}}}
    async with running(database_url) as api:
        await api.pay(500)
        assert await api.stripe(event, secret="wrong") == 403
        assert [await api.stripe(event) for _ in range(2)] == [200, 200]
        assert await api.rows() == [(500, "ch_1", "refunded")]
        shown = await api.client.get("/payments/1", headers={"Authorization": "Bearer a-token"})
        assert shown.json()["status"] == "refunded"
