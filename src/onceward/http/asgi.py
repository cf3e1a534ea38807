"""Idempotency-Key for every ASGI application.

    app = IdempotencyMiddleware(app, once, principal=user_of, required=["/payments"], optional=["/orders/*"])

Requests on other routes, of other methods and without a key pass through untouched. One with a key is read, claimed and
worked on once; the work has a task of its own and outlives its client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Unpack

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once
from onceward.engine.attempt import Attempt
from onceward.engine.detached import claim_apart
from onceward.engine.job import Job
from onceward.errors import ClaimError, ConfigurationError, InvalidKey, NotAcquired, ResultError, StoreError
from onceward.protocol.outcome import Executed, Failed, Parked
from onceward.protocol.runtime import Runtime

from .body import LIGHT, MOST_DIGITS, Body, BodyTooLarge
from .config import IdempotencyConfig, IdempotencyOptions
from .http_settlement import Unsettled
from .request_run import RequestRun
from .response_buffer import App, Message, Receive, Scope, Send
from .routes import Routes
from .semantics import BODY_TOO_LARGE, KEY_HEADER, HttpAnswer, IdempotentRequest

# Ways to answer that would go past us. Who does not find them uses plain messages.
_WAYS_AROUND = frozenset(("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers"))


class IdempotencyMiddleware:
    """`principal(scope)` says whose key it is: a str, or None for nobody. It may be async, and must authenticate."""

    def __init__(
        self,
        app: App,
        once: AsyncOnce | Once,
        *,
        principal: Callable[[Scope], Any],
        **choices: Unpack[IdempotencyOptions],
    ) -> None:
        self.app = app
        self.contract = IdempotencyConfig(_awaited(once), principal, **choices)
        self._routes = self._chosen()

    def _chosen(self) -> dict[str, Routes]:
        self.contract.check_routes()
        return self.contract.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (routes := self._routes.get(scope["method"].upper())) is not None:
            path, root = scope["path"], scope.get("root_path")
            required = routes.required(below(root, path) if root else path)
            if required is not None:
                keys = [value for name, value in scope["headers"] if name == KEY_HEADER]
                if keys or required:
                    asked = await self._asked(scope, receive, send, keys)
                    if asked is not None:
                        await self._work(*asked)
                    return
        await self.app(scope, receive, send)

    async def _asked(
        self, scope: Scope, receive: Receive, send: Send, keys: list[bytes]
    ) -> tuple[RequestRun, Job] | None:
        """Who it is, which key, which body. None: that was answered, or nobody waits for an answer any more."""
        contract = self.contract
        found = contract.principal(scope)
        principal = contract.checked_principal(await found if hasattr(found, "__await__") else found)
        if principal is None:
            await say(send, contract.no_principal())
            return None
        try:
            key = contract.key(keys)
        except InvalidKey as error:
            await say(send, contract.of_error(error))
            return None
        content_type, length = _described(scope["headers"])
        try:
            body, digest = await read(receive, length, contract.max_body, contract.engine.runtime)
        except BodyTooLarge:
            await say(send, contract.problem(BODY_TOO_LARGE))
            return None
        if body is None:  # the client has left before it had asked: nothing is begun
            return None
        path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass")
        request = IdempotentRequest(principal, scope["method"], path, scope.get("query_string", b""), content_type)
        scope["onceward.key"] = key
        _hide_ways_around(scope)
        performance = RequestRun(self.app, scope, send, contract, body)
        performance.job = job = contract.job(key, request, digest, performance)
        return performance, job

    async def _work(self, performance: RequestRun, job: Job) -> None:
        """Once, or say why not."""
        contract = self.contract
        found = None
        try:
            found = await claim_apart(contract.engine, job, performance)
            outcome = (
                await performance.end(found, await performance.begin(found)) if isinstance(found, Attempt) else found
            )
        except (NotAcquired, ClaimError, ResultError, StoreError) as error:
            if performance.begun:
                raise
            await performance.refuse(contract.of_error(error))
            return
        except BaseException as error:
            if isinstance(found, Attempt) and not (found.begun or found.over):
                await performance.give_up(found, error)
            else:
                performance.abandon()
            raise
        if isinstance(outcome, Failed | Parked) and outcome.exception is not None:
            if not isinstance(outcome.exception, Unsettled) or performance.broken:
                raise outcome.exception
        elif outcome is not None and not isinstance(outcome, Executed):
            if performance.begun:
                outcome.unwrap()  # the key was lost on the way: the answer breaks off
            await performance.refuse(contract.of_outcome(outcome))
        if performance.trouble is not None and not isinstance(performance.trouble, OSError):
            raise performance.trouble


async def read(
    receive: Receive, length: int | None, limit: int, runtime: Runtime
) -> tuple[Message | Body | None, bytes]:
    """The body and its SHA-256; None if the client left. Most come in one message, which is handed on as it is."""
    if length is not None and length > limit:
        raise BodyTooLarge
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        data = message.get("body", b"")
        if len(data) <= min(LIGHT, limit):
            return message, hashlib.sha256(data).digest()
    body = Body(limit)
    try:
        while message["type"] == "http.request":
            body.add(message.get("body", b""))
            if not message.get("more_body"):
                return body, await runtime.think(body.end) if body.heavy else body.end()
            if body.full:
                await runtime.think(body.flush)
            message = await receive()
    except BaseException:
        body.close()
        raise
    body.close()
    return None, b""


def below(root: str, path: str) -> str:
    """The path inside of an application that is mounted at `root`. Not every server puts the one before the other."""
    rest = path.removeprefix(root)
    return rest if rest.startswith("/") else path


async def say(send: Send, answer: HttpAnswer) -> None:
    status, headers, body = answer
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _described(headers: Any) -> tuple[bytes, int | None]:
    """Content type and length. A length that is none is left to the server, which has read the body by it."""
    content_type, length = b"", None
    for name, value in headers:
        if name == b"content-type":
            content_type = value
        elif name == b"content-length" and value.isdigit() and len(value) <= MOST_DIGITS:
            length = int(value)
    return content_type, length


def _hide_ways_around(scope: Scope) -> None:
    extensions = scope.get("extensions")
    if extensions and not _WAYS_AROUND.isdisjoint(extensions):
        scope["extensions"] = {name: each for name, each in extensions.items() if name not in _WAYS_AROUND}


def _awaited(once: AsyncOnce | Once) -> AsyncOnce:
    if isinstance(once, Once):
        return once.aio
    if not isinstance(once, AsyncOnce):
        raise ConfigurationError(f"{once!r} is no client", hint="give an AsyncOnce, or a Once")
    return once
