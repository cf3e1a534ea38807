"""Payments with Starlette: `uvicorn examples.http.starlette_app:app`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from examples.http.principals import asgi_principal
from onceward import AsyncOnce
from onceward.http.asgi import IdempotencyMiddleware

once = AsyncOnce("memory://")
payments: list[int] = []


async def pay(request: Request) -> JSONResponse:
    payments.append((await request.json())["cents"])
    return JSONResponse({"payment": len(payments)}, status_code=201)


@asynccontextmanager
async def closing(_: Starlette) -> AsyncIterator[None]:
    async with once:
        yield


app = Starlette(
    routes=[Route("/payments", pay, methods=["POST"])],
    middleware=[Middleware(IdempotencyMiddleware, once, principal=asgi_principal, required=["/payments"])],
    lifespan=closing,
)
