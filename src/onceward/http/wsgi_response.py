"""The response of a WSGI application, as the server iterates over it.

One part is always held back, because only the next one shows whether it was the last. The last part is returned when
the claim is settled. If the server stops reading because its client disconnected, the rest of the response is read
anyway, so the work completes. If a client stalls, the server stops asking for parts: after `stall_timeout` the lease is
no longer renewed, and the next request with the key is handled as after a crash.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from onceward.engine.attempt import SETTLED, UNPROTECTED, Attempt, current
from onceward.operations.block import ClaimBlock
from onceward.runtime.threads import run

from .body import Body
from .committed_response import committed_headers
from .config import IdempotencyConfig
from .http_settlement import NoResponse, SettlementFailed, settle
from .request_context import RequestContext
from .semantics import RawResponse

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class WsgiResponse:
    """The iterable that the server reads and closes. Takes a block that is already entered."""

    _attempt: Attempt

    def __init__(
        self,
        config: IdempotencyConfig,
        block: ClaimBlock,
        request: RequestContext,
        body: Body,
        start_response: StartResponse,
    ) -> None:
        self._config = config
        self._block = block
        self._request = request
        self._body = body
        self._start_response = start_response
        self._code = 0
        self._status = ""
        self._headers: list[tuple[str, str]] = []
        self._raw_headers: list[tuple[bytes, bytes]] = []
        self._written: list[bytes] = []
        self._head_sent = self._settled = False
        self._source: Iterable[bytes] = ()
        self._parts: Iterator[bytes] = iter(())
        self._ready: bytes | None = None
        self._next: bytes | None = None
        self._buffered: list[bytes] | None = []
        self._size = 0
        self._stall_timer: threading.Timer | None = None
        self._waiting_since: float | None = None  # when the server got the last part; None while the application works

    def begin(self, app: App, environ: Environ) -> None:
        """Run the application until its first part is complete; to its end, if the response has one part."""
        attempt = current()
        assert attempt is not None, "its block was entered"  # noqa: S101 (the caller enters the block)
        self._attempt = attempt
        attempt.integration = self._request
        try:
            self._source = app(environ, self._on_start_response)
            self._parts = iter(self._source)
            first = self._first_part()
            if self._request.committed is not None:
                first = self._use_committed(self._request.committed)
            self._ready = self._send_head(first)
        except BaseException as error:
            self._fail(error)
            raise

    def _use_committed(self, committed: RawResponse) -> bytes:
        """Respond with what a transaction of the handler has committed, instead of what the application returned."""
        self._raw_headers = committed_headers(self._raw_headers, committed, self._config)
        self._headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._raw_headers]
        self._code, self._status = committed.status, status_line(committed.status)
        self._buffered, self._next = [committed.body], None
        return committed.body

    def _send_head(self, first: bytes) -> bytes:
        """Send the status and headers. Return the first part; that of our own response if the claim was not settled."""
        refusal = self._settle() if self._next is None else None
        if refusal is not None:
            return send_response(self._start_response, refusal)[0]
        self._head_sent = True
        name, value = self._config.window
        self._start_response(self._status, [*self._headers, (name.decode(), value.decode())])
        return first

    def __iter__(self) -> WsgiResponse:
        return self

    def __next__(self) -> bytes:
        self._waiting_since = None
        part = self._next_part()
        self._waiting_since = time.monotonic()
        if self._stall_timer is None and self._next is not None:
            self._start_stall_timer(self._config.stall_timeout)
        return part

    def _next_part(self) -> bytes:
        if self._ready is not None:
            ready, self._ready = self._ready, None
            return ready
        if self._next is None:
            raise StopIteration
        part = self._next
        self._buffer_part(part)
        try:
            self._next = self._pull()
            refusal = self._settle() if self._next is None else None
        except BaseException as error:
            self._fail(error)
            raise
        if refusal is not None:
            raise SettlementFailed("the claim could not be settled: the last part of the response is not sent")
        return part

    def _start_stall_timer(self, seconds: float) -> None:
        self._stall_timer = threading.Timer(seconds, self._check_stall)
        self._stall_timer.daemon = True
        self._stall_timer.start()

    def _check_stall(self) -> None:
        """Stop renewing the lease if the server has not asked for the next part. Runs in the timer's thread."""
        if self._settled:
            return
        since, limit = self._waiting_since, self._config.stall_timeout
        left = limit if since is None else since + limit - time.monotonic()
        if left > 0:
            self._start_stall_timer(left)
        else:
            self._config.engine.heartbeat.drop(self._attempt)

    def close(self) -> None:
        """Read the rest of the response, so that the work completes although the server stopped reading."""
        try:
            for _ in self:
                pass
        finally:
            self._close()

    def _close(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._body.close()
        close, self._source = getattr(self._source, "close", None), ()
        if close is not None:
            close()

    # ── what the application calls ──

    def _on_start_response(
        self, status: str, headers: list[tuple[str, str]], exc_info: Any = None
    ) -> Callable[[bytes], object]:
        if exc_info is None and self._code:
            raise AssertionError("start_response was called before, and without exc_info")
        if exc_info is not None and (self._head_sent or self._written):
            raise exc_info[1]  # too late to replace the response
        self._code = int(status[:3])  # an invalid status raises inside the application
        self._raw_headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._status, self._headers = status, headers
        return self._written.append

    def _first_part(self) -> bytes:
        part, self._next = self._pull() or b"", self._pull()
        if not self._code:
            raise NoResponse("the application did not call start_response")
        self._buffer_part(part)
        return part

    def _pull(self) -> bytes | None:
        """Return the next part, preceded by what the application passed to the legacy `write`."""
        part = next(self._parts, None)
        if self._written:
            part, self._written = b"".join([*self._written, part or b""]), []
        self._head_sent = self._head_sent or bool(part)
        return part

    def _buffer_part(self, part: bytes) -> None:
        self._size += len(part)
        if self._buffered is not None:
            self._buffered.append(part)
            if self._size > self._config.max_response:
                self._buffered = None
        self._config.count_response(self._attempt.key, len(part))

    # ── settling the claim ──

    def _settle(self) -> RawResponse | None:
        """Settle the claim and leave the block. Return our own response if the application's must not be sent."""
        refusal = run(settle(self._config, self._attempt, self._code, self._raw_headers, self._buffered))
        self._settled = True
        error = (
            SettlementFailed("the claim could not be settled")
            if self._attempt.state not in (SETTLED, UNPROTECTED)
            else None
        )
        self._block.__exit__(type(error) if error else None, error, None)
        return None if refusal is None else self._config.outcome_response(refusal)

    def _fail(self, error: BaseException) -> None:
        self._next = None
        try:
            if not self._settled:
                self._block.__exit__(type(error), error, error.__traceback__)
        finally:
            self._close()


def send_response(start_response: StartResponse, response: RawResponse) -> list[bytes]:
    status, headers, body = response
    start_response(status_line(status), [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers])
    return [body]


def status_line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"
