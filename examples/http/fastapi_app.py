"""Payments with FastAPI: `uvicorn examples.http.fastapi_app:app`. The key is in the OpenAPI document, see /docs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from pydantic import BaseModel

from examples.http.principals import asgi_principal
from onceward import AsyncOnce
from onceward.http.fastapi import Idempotency

once = AsyncOnce("memory://")
idempotency = Idempotency(once, principal=asgi_principal, window="24h")
payments: list[int] = []


class Payment(BaseModel):
    """The body of a payment request."""

    cents: int


@asynccontextmanager
async def closing(_: FastAPI) -> AsyncIterator[None]:
    async with once:
        yield


app = FastAPI(lifespan=closing)
idempotency.protect(app)


@app.post("/payments", status_code=201, dependencies=[idempotency.required], responses=idempotency.responses)
async def pay(payment: Payment) -> dict[str, int]:
    payments.append(payment.cents)
    return {"payment": len(payments)}


@app.post("/notes", dependencies=[idempotency.optional])
async def note(payment: Payment) -> dict[str, int]:
    payments.append(payment.cents)
    return {"payment": len(payments)}
