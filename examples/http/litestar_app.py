"""Payments with Litestar: `uvicorn examples.http.litestar_app:app`."""

from __future__ import annotations

from litestar import Litestar, post
from litestar.middleware.base import DefineMiddleware

from examples.http.who import of_scope
from onceward import AsyncOnce
from onceward.http.asgi import IdempotencyMiddleware

once = AsyncOnce("memory://")
payments: list[int] = []


@post("/payments")
async def pay(data: dict[str, int]) -> dict[str, int]:
    payments.append(data["cents"])
    return {"payment": len(payments)}


app = Litestar(
    [pay],
    middleware=[DefineMiddleware(IdempotencyMiddleware, once, principal=of_scope, required=["/payments"])],
    on_shutdown=[once.close],
)
