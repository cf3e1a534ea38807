"""Payments with Litestar: `uvicorn examples.http.litestar_app:app`."""

from __future__ import annotations

from typing import Any

from litestar import Litestar, Request, post
from litestar.middleware.base import DefineMiddleware

from examples.http.principals import asgi_principal
from onceward import AsyncOnce
from onceward.http.asgi import IdempotencyMiddleware

once = AsyncOnce("memory://")
payments: list[int] = []


@post("/payments")
async def pay(request: Request[Any, Any, Any]) -> dict[str, int]:
    payments.append((await request.json())["cents"])
    return {"payment": len(payments)}


app = Litestar(
    [pay],
    middleware=[DefineMiddleware(IdempotencyMiddleware, once=once, principal=asgi_principal, required=["/payments"])],
    on_shutdown=[once.close],
    logging_config=None,  # leave the logging configuration to the program
)
