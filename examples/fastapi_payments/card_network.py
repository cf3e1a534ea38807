"""Charge a card at a remote API that accepts idempotency keys, and a stand-in for that API."""

from __future__ import annotations

import httpx
from msgspec import Struct

DECLINED = 402


class CardDeclined(Exception):
    """The card was not charged."""


class CardNetwork:
    """The client of the remote API."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def charge(self, cents: int, *, key: str) -> str:
        """Charge the card once per key, and return the number of the charge."""
        response = await self._client.post("/charges", json={"cents": cents}, headers={"Idempotency-Key": key})
        if response.status_code == DECLINED:
            raise CardDeclined
        response.raise_for_status()
        number: str = response.json()["charge"]
        return number


class Charge(Struct, frozen=True):
    """A charge in the books of the stand-in."""

    number: str
    cents: int


class StandInNetwork:
    """Behaves as the remote API: one charge per key. It declines amounts over the limit, and may lose replies."""

    def __init__(self, limit: int = 100_000) -> None:
        self.charges: dict[str, Charge] = {}
        self.lose_replies = 0
        self._limit = limit

    def handle(self, request: httpx.Request) -> httpx.Response:
        """Handle a request: pass it to `httpx.MockTransport`."""
        from msgspec import json

        cents = json.decode(request.content)["cents"]
        if cents > self._limit:
            return httpx.Response(DECLINED)
        key = request.headers["Idempotency-Key"]
        charge = self.charges.setdefault(key, Charge(f"ch_{len(self.charges) + 1}", cents))
        if self.lose_replies:
            self.lose_replies -= 1
            raise httpx.ReadTimeout("charged, but the reply is lost")
        return httpx.Response(200, json={"charge": charge.number})

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self.handle), base_url="https://cards.example")
