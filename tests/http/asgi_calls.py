"""Call an ASGI application as a server does, without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from onceward import AsyncOnce
from onceward.http.asgi import IdempotencyMiddleware
from onceward.stores import MemoryStore
from tests.sites import JSON, Reply, reply_to

App = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]


def scope_of(key: str | None = '"k1"', method: str = "POST", **more: Any) -> dict[str, Any]:
    headers = [JSON] if key is None else [JSON, (b"idempotency-key", key.encode())]
    return {
        "type": "http",
        "method": method,
        "path": "/pay",
        "raw_path": b"/pay",
        "query_string": b"",
        "headers": headers,
        **more,
    }


def messages_of(*chunks: bytes) -> list[dict[str, Any]]:
    chunks = chunks or (b"{}",)
    return [
        {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}
        for number, chunk in enumerate(chunks, 1)
    ]


@asynccontextmanager
async def guarded(app: Any, **choices: Any) -> AsyncIterator[IdempotencyMiddleware]:
    async with AsyncOnce(MemoryStore()) as once:
        yield IdempotencyMiddleware(app, once, **{"principal": lambda scope: "alice", "optional": ["/pay"], **choices})


async def ask(app: Any, scope: dict[str, Any] | None = None, *chunks: bytes) -> Reply:
    return await reply_to(app, scope or scope_of(), messages_of(*chunks))


class Counting:
    """An application that answers with its number of calls. It awaits `steps` in between."""

    def __init__(self, *steps: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.runs = 0
        self.seen: list[Any] = []
        self._steps = steps

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.runs += 1
        while (message := await receive()).get("more_body"):
            self.seen.append(message)
        self.seen.append(message)
        for step in self._steps:
            await step()
        await send({"type": "http.response.start", "status": 200, "headers": [JSON]})
        await send({"type": "http.response.body", "body": b"%d" % self.runs})


def replaying(*messages: Any) -> Callable[[], Coroutine[Any, Any, Any]]:
    left = list(messages)

    async def receive() -> Any:
        return left.pop(0)

    return receive
