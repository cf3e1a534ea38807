"""One request that is worked on: what the application sees instead of the server.

It reads the body that was read before, and is never told that the client has left. Its answer goes out as it comes, but
for the last part, which waits until the claim is settled: who has the whole answer can rely on it. Background tasks
that run behind the answer are not part of the claim any more.

An answer in one part, as most are, is settled and sent when the application has returned, by the server's own task:
what the application has made for the request is gone by then, its task included, instead of lying about while the store
is asked. If the application does not return at once, but does more behind its answer, that is done beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from onceward.engine.attempt import Attempt
from onceward.engine.job import Job
from onceward.protocol.outcome import Outcome
from onceward.protocol.runtime import Runtime
from onceward.runtime.aio import shielded

from .body import Body
from .config import IdempotencyConfig
from .http_settlement import judged, settle, settlement
from .semantics import HttpAnswer

# Each framework has its own types for these, which do not fit each other.
Scope = Any
Message = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[..., Awaitable[None]]


class ResponseBuffer:
    """The application's own view of one request with a key."""

    begun = False  # a part of its answer was sent
    over = False  # all of it was, or is not going to be
    broken = False  # its last part is not sent, because nobody could rely on it
    trouble: Exception | None = None  # of the server, when it was to send
    job: Job | None = None
    _sending: asyncio.Task[Any] | None = None  # who waits for the server to take a message
    _message: Message | None = None
    _body: Body | None = None
    _reading: asyncio.Future[bytes] | None = None
    _left = 0
    _answered: asyncio.Event | None = None
    _attempt: Attempt | None = None
    _settled = False
    _start: Message | None = None
    _last: Message | None = None  # of an answer in one part: it waits for the application to return
    _beside: asyncio.Task[None] | None = None  # if that does more behind its answer, settled and sent there
    _size = 0
    _length: int | None = None

    def __init__(self, app: App, scope: Scope, send: Send, contract: IdempotencyConfig, body: Message | Body) -> None:
        self._app = app
        self._scope = scope
        self._send = send
        self._contract = contract
        self._parts: list[bytes] | None = []
        # What every request sets later: where all of them are named at once, Python needs no dict for each.
        self._attempt = self._start = self._last = self._sending = self.job = None
        self.begun = self.over = self._settled = False
        self._size = 0
        if isinstance(body, Body):
            self._body = body
            self._left = body.size
        else:
            self._message = body

    def _leave(self) -> None:
        """It is over: nothing leads round in a circle any more, in which the answer would wait to be collected."""
        self.job = self._attempt = None
        if self._body is not None:
            self._body.close()
        self._end()

    # ── what the application reads ──

    async def receive(self) -> Message:
        if self._message is not None:
            message, self._message = self._message, None
            return message
        if self._body is not None and self._left >= 0:
            return await self._piece(self._body)
        if not self.over:
            if self._answered is None:
                self._answered = asyncio.Event()
            await self._answered.wait()
        return {"type": "http.disconnect"}

    async def _piece(self, body: Body) -> Message:
        if body.on_disk:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._contract.engine.runtime.think(body.read))
            piece = await shielded(self._reading)  # who stops waiting gets it the next time
            self._reading = None
        else:
            piece = body.read()
        self._left -= len(piece)
        more = self._left > 0
        if not more:
            self._left = -1
        return {"type": "http.request", "body": piece, "more_body": more}

    # ── what it answers ──

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.body" and self._start is not None:
            if self._settled or self.begun or message.get("more_body", False):
                await self._part(message, self._start)
            else:
                self._whole(message)
        elif kind == "http.response.start":
            if self._start is not None:
                raise RuntimeError("the answer was begun before")
            # held back until it is known whether there is more than one part; its headers may be any iterable
            self._start = {**message, "headers": [*message.get("headers", ())]}
        else:
            await self._forward(message)

    def _whole(self, message: Message) -> None:
        """An answer in one part."""
        self._keep(message.get("body", b""))
        self._settled = True
        if self._attempt is not None:
            self._attempt.end(None)  # what comes behind the answer is not the key's any more
        self._last = message

    async def _part(self, message: Message, start: Message) -> None:
        """One of several."""
        more = message.get("more_body", False)
        if not self._settled:
            self._keep(message.get("body", b""))
            if not more or self._is_whole():
                self._settled = True
                trouble = await self._settle(start)
                if trouble is not None:
                    await self._break_off(trouble)
        if self.over or self._last is not None:
            return
        if self.begun:
            await self._forward(message)
        else:
            self.begun = True
            await self._forward(self._headed(start), message)
        if not more:
            self._end()

    def _look(self) -> None:
        """The application waits for something. Its answer, if there is one, does not wait for it."""
        if self._last is not None and self._beside is None:
            self._beside = asyncio.get_running_loop().create_task(self._conclude())

    def _rest(self) -> Awaitable[object]:
        """The application has returned. What is left to do for its answer, to be awaited."""
        if self._beside is not None:
            return _seen_through(self._contract.engine.runtime, self._beside)
        return self._conclude()

    async def _conclude(self) -> None:
        """The whole answer is there: record it, and then send it."""
        attempt, last = self._attempt, self._last
        start: Message = self._start
        outcome = None
        if attempt is not None:
            answered = settlement(attempt, start["status"], start["headers"], self._parts)
            outcome = judged(attempt, await answered)
        if outcome is not None:
            await self._break_off(outcome)
        else:
            self.begun = True
            start["headers"].append(self._contract.window)
            await self._forward(start, last)
            self._end()

    def _headed(self, start: Message) -> Message:
        return {**start, "headers": [*start["headers"], self._contract.window]}

    def _end(self) -> None:
        self.over = True
        if self._answered is not None:
            self._answered.set()

    def _keep(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._parts is not None:
            self._parts.append(bytes(chunk))  # a copy of what its owner may write to
            if self._size > self._contract.max_answer:
                self._parts = None

    def _is_whole(self) -> bool:
        """Whether the client has all that was announced, although more parts may come: empty ones."""
        if self._length is None:
            headers = self._start["headers"] if self._start else ()
            found = [value for name, value in headers if name.lower() == b"content-length"]
            self._length = int(found[0]) if found and found[0].isdigit() else -1
        return 0 <= self._length <= self._size

    async def _settle(self, start: Message) -> Outcome[Any] | None:
        attempt = self._attempt
        return None if attempt is None else await settle(attempt, start["status"], start["headers"], self._parts)

    async def _break_off(self, trouble: Outcome[Any]) -> None:
        """Nobody may rely on the answer."""
        if self.begun:
            self.broken = True
        else:
            await self._say(self._contract.of_outcome(trouble))
        self._end()

    async def refuse(self, answer: HttpAnswer) -> None:
        """The application is not asked: the answer is ours."""
        self._leave()
        await self._say(answer)

    async def _say(self, answer: HttpAnswer) -> None:
        self.begun = True
        status, headers, body = answer
        await self._forward(
            {"type": "http.response.start", "status": status, "headers": headers},
            {"type": "http.response.body", "body": body},
        )

    async def _forward(self, *messages: Message) -> None:
        """To the server. A client that has left, or stalls, is no reason to stop."""
        if self.trouble is None:
            self._sending = task = asyncio.current_task()
            try:
                if self._attempt is None or self._settled:
                    for message in messages:
                        await self._send(message)
                else:  # a client that takes nothing, and does not leave, must not keep the key
                    for message in messages:
                        async with asyncio.timeout(self._contract.stall_timeout):
                            await self._send(message)
            except asyncio.CancelledError:
                if self._sending is not None or task is None or task.uncancel():
                    raise  # it was not `abandon`: somebody means the work
            except Exception as error:  # noqa: BLE001 (each server has its own; told when the work is done)
                self.trouble = error
            finally:
                self._sending = None


async def _seen_through(runtime: Runtime, beside: asyncio.Task[None]) -> None:
    """It runs to its end, whoever cancels us meanwhile."""
    _, cancelled = await runtime.finish(beside)
    if cancelled is not None:
        raise cancelled
