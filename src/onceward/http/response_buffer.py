"""The `receive` and `send` that the application gets instead of the server's.

`receive` returns the body that was read before the claim, and never reports that the client has disconnected. `send`
forwards the response part by part, but holds back the last part until the claim is settled. So a client that has the
whole response can rely on it. Background tasks that run after the response are not part of the claim.

Most responses have one part. The server's own task settles and sends those when the application has returned. By then
the application's task and its objects are gone, so they use no memory while the store is busy. If the application
continues to work after its response, a separate task settles and sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from onceward.engine.attempt import Attempt
from onceward.protocol.outcome import Outcome
from onceward.protocol.runtime import Runtime
from onceward.runtime.aio import shielded

from .body import Body
from .committed_response import committed_headers
from .config import IdempotencyConfig
from .http_settlement import outcome_if_unsettled, record_response, settle
from .semantics import RawResponse

# Each framework has its own types for these, and they are incompatible.
Scope = Any
Message = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[..., Awaitable[None]]


class ResponseBuffer:
    """The application's own view of one request with a key."""

    response_started = False  # a part of the response was sent
    finished = False  # the whole response was sent, or the rest will not be
    truncated = False  # the last part is withheld because the claim could not be settled
    send_error: Exception | None = None  # raised by the server's send()
    _sending: asyncio.Task[Any] | None = None  # waits until the server has taken a message
    _message: Message | None = None
    _body: Body | None = None
    _reading: asyncio.Future[bytes] | None = None
    _unread = 0
    _finished_event: asyncio.Event | None = None
    _attempt: Attempt | None = None
    _request: Any = None  # the RequestContext, which knows the response that a transaction has committed
    _settled = False
    _start_message: Message | None = None
    _final_message: Message | None = None  # of a one-part response: sent when the application has returned
    _background_task: asyncio.Task[None] | None = (
        None  # settles and sends if the application continues after its response
    )
    _size = 0
    _length: int | None = None

    def __init__(self, app: App, scope: Scope, send: Send, config: IdempotencyConfig, body: Message | Body) -> None:
        self._app = app
        self._scope = scope
        self._send = send
        self._config = config
        self._parts: list[bytes] | None = []
        # Assign everything that a request sets later: instances with the same attributes share their dict keys.
        self._attempt = self._request = self._start_message = self._final_message = self._sending = None
        self.response_started = self.finished = self._settled = False
        self._size = 0
        if isinstance(body, Body):
            self._body = body
            self._unread = body.size
        else:
            self._message = body

    def _close(self) -> None:
        """Drop references, so that no cycle delays freeing the response, and close the body."""
        self._attempt = None
        if self._body is not None:
            self._body.close()
        self._finish()

    # ── what the application reads ──

    async def receive(self) -> Message:
        if self._message is not None:
            message, self._message = self._message, None
            return message
        if self._body is not None and self._unread >= 0:
            return await self._read_piece(self._body)
        if not self.finished:
            if self._finished_event is None:
                self._finished_event = asyncio.Event()
            await self._finished_event.wait()
        return {"type": "http.disconnect"}

    async def _read_piece(self, body: Body) -> Message:
        if body.on_disk:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._config.engine.runtime.compute(body.read))
            piece = await shielded(self._reading)  # a cancelled caller gets the piece at its next call
            self._reading = None
        else:
            piece = body.read()
        self._unread -= len(piece)
        more = self._unread > 0
        if not more:
            self._unread = -1
        return {"type": "http.request", "body": piece, "more_body": more}

    # ── what the application sends ──

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if self._request is not None and self._request.committed is not None:
            message = committed_message(message, self._request.committed, self._config)
        if kind == "http.response.body" and self._start_message is not None:
            if self._settled or self.response_started or message.get("more_body", False):
                await self._next_part(message, self._start_message)
            else:
                self._single_part(message)
        elif kind == "http.response.start":
            if self._start_message is not None:
                raise RuntimeError("the response was already started")
            # held back until we know whether there is more than one part; its headers may be any iterable
            self._start_message = {**message, "headers": [*message.get("headers", ())]}
        else:
            await self._forward(message)

    def _single_part(self, message: Message) -> None:
        """Take a response that has one part."""
        self._buffer_part(message.get("body", b""))
        self._settled = True
        if self._attempt is not None:
            self._attempt.end(None)  # work after the response is not part of the claim
        self._final_message = message

    async def _next_part(self, message: Message, start: Message) -> None:
        """Forward one of several parts; settle the claim before the last one."""
        more = message.get("more_body", False)
        if not self._settled:
            self._buffer_part(message.get("body", b""))
            if not more or self._is_complete():
                self._settled = True
                refusal = await self._settle(start)
                if refusal is not None:
                    await self._reject(refusal)
        if self.finished or self._final_message is not None:
            return
        if self.response_started:
            await self._forward(message)
        else:
            self.response_started = True
            await self._forward(self._with_window(start), message)
        if not more:
            self._finish()

    def _use_committed(self) -> None:
        """Respond with what a transaction has committed, although the application raised before it responded."""
        if self._start_message is None and self._request is not None and self._request.committed is not None:
            status, headers, body = self._request.committed
            self._start_message = {"type": "http.response.start", "status": status, "headers": [*headers]}
            self._single_part({"type": "http.response.body", "body": body})

    def _on_suspend(self) -> None:
        """Send a complete response now: the application is suspended, and the response must not wait for it."""
        if self._final_message is not None and self._background_task is None:
            self._background_task = asyncio.get_running_loop().create_task(self._settle_and_send())

    def _complete_response(self) -> Awaitable[object]:
        """Return an awaitable that settles and sends the response. The application has returned."""
        if self._background_task is not None:
            return _wait_to_end(self._config.engine.runtime, self._background_task)
        return self._settle_and_send()

    async def _settle_and_send(self) -> None:
        """Record the complete response, then send it."""
        attempt, last = self._attempt, self._final_message
        start: Message = self._start_message
        outcome = None
        if attempt is not None:
            recording = record_response(self._config, attempt, start["status"], start["headers"], self._parts)
            outcome = outcome_if_unsettled(attempt, await recording)
        if outcome is not None:
            await self._reject(outcome)
        else:
            self.response_started = True
            start["headers"].append(self._config.window)
            await self._forward(start, last)
            self._finish()

    def _with_window(self, start: Message) -> Message:
        return {**start, "headers": [*start["headers"], self._config.window]}

    def _finish(self) -> None:
        self.finished = True
        if self._finished_event is not None:
            self._finished_event.set()

    def _buffer_part(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._parts is not None:
            self._parts.append(bytes(chunk))  # a copy: the application may reuse its buffer
            if self._size > self._config.max_response:
                self._parts = None
        if self._attempt is not None:
            self._config.count_response(self._attempt.key, len(chunk))

    def _is_complete(self) -> bool:
        """Return whether the announced content length is reached. Only empty parts may follow."""
        if self._length is None:
            headers = self._start_message["headers"] if self._start_message else ()
            found = [value for name, value in headers if name.lower() == b"content-length"]
            self._length = int(found[0]) if found and found[0].isdigit() else -1
        return 0 <= self._length <= self._size

    async def _settle(self, start: Message) -> Outcome[Any] | None:
        attempt = self._attempt
        return (
            None
            if attempt is None
            else await settle(self._config, attempt, start["status"], start["headers"], self._parts)
        )

    async def _reject(self, refusal: Outcome[Any]) -> None:
        """Withhold the rest of a response whose claim could not be settled, or send the refusal instead."""
        if self.response_started:
            self.truncated = True
        else:
            await self._send_response(self._config.outcome_response(refusal))
        self._finish()

    async def send_refusal(self, response: RawResponse) -> None:
        """Send our own response. The application does not run."""
        self._close()
        await self._send_response(response)

    async def _send_response(self, response: RawResponse) -> None:
        self.response_started = True
        status, headers, body = response
        await self._forward(
            {"type": "http.response.start", "status": status, "headers": headers},
            {"type": "http.response.body", "body": body},
        )

    async def _forward(self, *messages: Message) -> None:
        """Forward messages to the server. A client that disconnects or stalls does not stop the work."""
        if self.send_error is None:
            self._sending = task = asyncio.current_task()
            try:
                if self._attempt is None or self._settled:
                    for message in messages:
                        await self._send(message)
                else:  # a client that stalls must not hold the key
                    for message in messages:
                        async with asyncio.timeout(self._config.stall_timeout):
                            await self._send(message)
            except asyncio.CancelledError:
                if self._sending is not None or task is None or task.uncancel():
                    raise  # not from `abandon`: the work itself is cancelled
            except Exception as error:  # noqa: BLE001 (each server has its own; raised when the work is done)
                self.send_error = error
            finally:
                self._sending = None


def committed_message(message: Message, committed: RawResponse, config: IdempotencyConfig) -> Message:
    """Return the message with the response that was committed, instead of what the application made of it since."""
    if message["type"] == "http.response.start":
        headers = committed_headers(message.get("headers", ()), committed, config)
        return {**message, "status": committed.status, "headers": headers}
    if message["type"] == "http.response.body":
        return {**message, "body": committed.body, "more_body": False}
    return message


async def _wait_to_end(runtime: Runtime, task: asyncio.Task[None]) -> None:
    """Wait until the task has finished, even if the caller is cancelled meanwhile; then re-raise."""
    _, cancelled = await runtime.shield(task)
    if cancelled is not None:
        raise cancelled
