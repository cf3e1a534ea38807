"""Let a FastAPI dependency determine the principal: `Idempotency(once, principal=Depends(current_user_id))`.

The dependency runs before the key is claimed, in a small FastAPI application of its own that has the same paths,
overrides and exception handlers. So it may use other dependencies, path parameters and `yield`, and its HTTPException
becomes the same response as in the endpoint. If it reads the body, the body is kept for the endpoint.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Final

from .body import BodyTooLarge
from .response_buffer import Message, Receive, Scope, Send

FOUND_IN_SCOPE: Final = "onceward.principal"


class DependencyPrincipal:
    """Runs the dependency for one request after the other."""

    def __init__(self, app: Any, depends: Any, routes: Iterable[tuple[str, set[str]]], max_body: int) -> None:
        from fastapi import FastAPI

        self._app = app
        self._max_body = max_body
        self._own = FastAPI(openapi_url=None, exception_handlers=app.exception_handlers)
        self._own.state = app.state
        endpoint = _endpoint(depends)
        for path, methods in routes:
            self._own.add_api_route(path, endpoint, methods=[*methods], response_model=None)

    async def find(self, scope: Scope, receive: Receive, send: Send) -> tuple[list[Any], Receive]:
        """Return a list with the principal, and the rest of the body. The list is empty if a refusal was sent."""
        self._own.dependency_overrides = self._app.dependency_overrides
        found: list[Any] = []
        body = KeptBody(receive, self._max_body)

        async def forward(message: Message) -> None:
            if not found and not body.is_too_large:
                await send(message)

        await self._own({**scope, FOUND_IN_SCOPE: found}, body.receive, forward)
        if body.is_too_large:
            raise BodyTooLarge
        return found, body.replay


class KeptBody:
    """Keeps the parts of a body that the dependency reads, so that they can be read again."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._kept: list[Message] = []
        self._size = 0
        self.is_too_large = False

    async def receive(self) -> Message:
        message = await self._receive()
        self._kept.append(message)
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            self.is_too_large = True
            raise BodyTooLarge
        return message

    async def replay(self) -> Message:
        return self._kept.pop(0) if self._kept else await self._receive()


def _endpoint(depends: Any) -> Any:
    from fastapi import Request, Response

    def endpoint(request: Any, principal: Any) -> Any:
        request.scope[FOUND_IN_SCOPE].append(principal)
        return Response(status_code=204)

    parameter = inspect.Parameter
    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # FastAPI reads it
        [
            parameter("request", parameter.KEYWORD_ONLY, annotation=Request),
            parameter("principal", parameter.KEYWORD_ONLY, default=depends),
        ]
    )
    return endpoint
