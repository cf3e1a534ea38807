"""One small FastAPI application: bare, with our middleware, and with each peer as its documentation shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import redis.asyncio

from bench.peers import module
from onceward import AsyncOnce
from onceward.http.asgi import IdempotencyMiddleware

Close = Callable[[], Awaitable[object]]
Make = Callable[[str], tuple[Any, Close]]
"""Takes the URL of the Redis server. Returns the application, and a function that closes what it has opened."""

prefixes = count()

MAX_CONNECTIONS = 1_000
"""For peers: some still use a connection when the next request arrives, and the driver's default is 100."""


def application(decorate: Callable[[Any], Any] = lambda handler: handler) -> Any:
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse
    from pydantic import BaseModel

    class Order(BaseModel):
        item: str
        cents: int
        note: str

    async def order(request: Request, order: Order) -> JSONResponse:  # noqa: ARG001 (a peer needs it)
        return JSONResponse({"id": 7, "item": order.item, "cents": order.cents})

    order.__annotations__.update(request=Request, order=Order)  # local names cannot be resolved from annotations
    app = FastAPI()
    app.post("/orders", response_model=None)(decorate(order))
    return app


async def nothing() -> None:
    """Close nothing."""


def bare(_: str) -> tuple[Any, Close]:
    return application(), nothing


def onceward(url: str) -> tuple[Any, Close]:
    once = AsyncOnce(f"{url}?unsafe_persistence=allow&prefix=bench-{next(prefixes)}", window="24h")
    app = application()
    app.add_middleware(IdempotencyMiddleware, once, principal=lambda scope: "bench", optional=["/orders"])  # noqa: ARG005
    return app, once.close


def idemkit(url: str) -> tuple[Any, Close]:
    library = module("idemkit", "idemkit")
    backend = library.RedisBackend.from_url(url, namespace=f"bench-{next(prefixes)}", max_connections=MAX_CONNECTIONS)
    app = application()
    app.add_middleware(
        library.IdempotencyMiddleware,
        backend=backend,
        config=library.HttpConfig(scope=lambda request: "bench"),  # noqa: ARG005
    )
    return app, backend.aclose


def asgi_idempotency_header(url: str) -> tuple[Any, Close]:
    library = module("idempotency_header_middleware", "asgi-idempotency-header")
    backends = module("idempotency_header_middleware.backends.redis", "asgi-idempotency-header")
    client: Any = redis.asyncio.Redis.from_url(url, max_connections=MAX_CONNECTIONS)
    prefix = f"bench-{next(prefixes)}"
    backend = backends.RedisBackend(client, keys_key=f"{prefix}-keys", response_key=f"{prefix}-responses")
    app = application()
    app.add_middleware(library.IdempotencyHeaderMiddleware, backend=backend)
    return app, client.aclose


def fastapi_idempotency_key(url: str) -> tuple[Any, Close]:
    library = module("fastapi_idempotency_key", "fastapi-idempotency-key")
    client: Any = redis.asyncio.Redis.from_url(url, max_connections=MAX_CONNECTIONS)
    app = application()
    backend = library.RedisBackend(redis=client, prefix=f"bench-{next(prefixes)}:")
    app.add_middleware(library.IdempotencyMiddleware, backend=backend)
    return app, client.aclose


def idemptx(url: str) -> tuple[Any, Close]:
    library, backends = module("idemptx", "idemptx"), module("idemptx.backend", "idemptx")
    client: Any = redis.asyncio.Redis.from_url(url, max_connections=MAX_CONNECTIONS)
    backend = backends.AsyncRedisBackend(client, prefix=f"bench-{next(prefixes)}:")
    return application(library.idempotent(storage_backend=backend, key_ttl=86_400)), client.aclose


PEERS: dict[str, Make] = {
    "idemkit": idemkit,
    "asgi-idempotency-header": asgi_idempotency_header,
    "fastapi-idempotency-key": fastapi_idempotency_key,
    "idemptx": idemptx,
}

WITHOUT_REPLAY = ("fastapi-idempotency-key",)
"""On Redis, every duplicate is a 422: there is no replay to compare with."""
