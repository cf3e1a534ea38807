"""The answer of a WSGI application on its way to the server.

One part is always held back, because only the next one shows whether it was the last; the last one is given when the
claim is settled. A server that stops reading, because its client has left, does not stop the work: the rest of the
answer is read all the same. One that waits for a client that stalls is in the hands of that client: after
`stall_timeout` the claim is not renewed any more, and who comes next finds it as after a crash.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from onceward.engine.attempt import Attempt, current
from onceward.operations.block import ClaimBlock
from onceward.runtime.bridge import run

from .body import Body
from .config import IdempotencyConfig
from .http_settlement import NoAnswer, Unsettled, settle
from .semantics import HttpAnswer

Environ = dict[str, Any]
StartResponse = Callable[..., Callable[[bytes], object]]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class WsgiResponse:
    """What the server iterates over, and closes. The block is entered."""

    _attempt: Attempt

    def __init__(
        self, contract: IdempotencyConfig, block: ClaimBlock, body: Body, start_response: StartResponse
    ) -> None:
        self._contract = contract
        self._block = block
        self._body = body
        self._start_response = start_response
        self._code = 0
        self._status = ""
        self._headers: list[tuple[str, str]] = []
        self._wire: list[tuple[bytes, bytes]] = []
        self._written: list[bytes] = []
        self._given = self._settled = False
        self._source: Iterable[bytes] = ()
        self._parts: Iterator[bytes] = iter(())
        self._ready: bytes | None = None
        self._next: bytes | None = None
        self._kept: list[bytes] | None = []
        self._size = 0
        self._watch: threading.Timer | None = None
        self._handed: float | None = None  # since when the server has a part; None: the application is at work

    def begin(self, app: App, environ: Environ) -> None:
        """Run the application until it is known how it answers; to its end, if it answers in one part."""
        attempt = current()
        assert attempt is not None, "its block was entered"  # noqa: S101 (by the line above whoever calls)
        self._attempt = attempt
        try:
            self._source = app(environ, self._started)
            self._parts = iter(self._source)
            self._ready = self._begun(self._first())
        except BaseException as error:
            self._fail(error)
            raise

    def _begun(self, first: bytes) -> bytes:
        """The head of the answer goes to the server. What comes behind it is its first part, or our answer instead."""
        trouble = self._settle() if self._next is None else None
        if trouble is not None:
            return say(self._start_response, trouble)[0]
        self._given = True
        name, value = self._contract.window
        self._start_response(self._status, [*self._headers, (name.decode(), value.decode())])
        return first

    def __iter__(self) -> WsgiResponse:
        return self

    def __next__(self) -> bytes:
        self._handed = None
        part = self._following()
        self._handed = time.monotonic()
        if self._watch is None and self._next is not None:
            self._watch_over(self._contract.stall_timeout)
        return part

    def _following(self) -> bytes:
        if self._ready is not None:
            ready, self._ready = self._ready, None
            return ready
        if self._next is None:
            raise StopIteration
        part = self._next
        self._keep(part)
        try:
            self._next = self._pull()
            trouble = self._settle() if self._next is None else None
        except BaseException as error:
            self._fail(error)
            raise
        if trouble is not None:
            raise Unsettled("the claim could not be settled: the last part of the answer is not sent")
        return part

    def _watch_over(self, seconds: float) -> None:
        self._watch = threading.Timer(seconds, self._look)
        self._watch.daemon = True
        self._watch.start()

    def _look(self) -> None:
        """In a thread of its own: has the server asked for the next part?"""
        if self._settled:
            return
        since, limit = self._handed, self._contract.stall_timeout
        left = limit if since is None else since + limit - time.monotonic()
        if left > 0:
            self._watch_over(left)
        else:
            self._contract.engine.heartbeat.drop(self._attempt)

    def close(self) -> None:
        """The server has enough. The work goes on to its end."""
        try:
            for _ in self:
                pass
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._body.close()
        close, self._source = getattr(self._source, "close", None), ()
        if close is not None:
            close()

    # ── what the application does ──

    def _started(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        if exc_info is None and self._code:
            raise AssertionError("start_response was called before, and without exc_info")
        if exc_info is not None and (self._given or self._written):
            raise exc_info[1]  # it is too late for another answer
        self._code = int(status[:3])  # what no server would take, the application hears of
        self._wire = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._status, self._headers = status, headers
        return self._written.append

    def _first(self) -> bytes:
        part, self._next = self._pull() or b"", self._pull()
        if not self._code:
            raise NoAnswer("the application gave no status")
        self._keep(part)
        return part

    def _pull(self) -> bytes | None:
        """The next part; what it wrote by the old way of `write` comes first."""
        part = next(self._parts, None)
        if self._written:
            part, self._written = b"".join([*self._written, part or b""]), []
        self._given = self._given or bool(part)
        return part

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._kept is not None:
            self._kept.append(part)
            if self._size > self._contract.max_answer:
                self._kept = None

    # ── what becomes of its claim ──

    def _settle(self) -> HttpAnswer | None:
        """The last word, and the end of the block. An answer of ours comes back if the application's does not count."""
        trouble = run(settle(self._attempt, self._code, self._wire, self._kept))
        self._settled = True
        error = Unsettled("the claim could not be settled") if self._attempt.unconfirmed else None
        self._block.__exit__(type(error) if error else None, error, None)
        return None if trouble is None else self._contract.of_outcome(trouble)

    def _fail(self, error: BaseException) -> None:
        self._next = None
        try:
            if not self._settled:
                self._block.__exit__(type(error), error, error.__traceback__)
        finally:
            self._leave()


def say(start_response: StartResponse, answer: HttpAnswer) -> list[bytes]:
    status, headers, body = answer
    start_response(status_line(status), [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers])
    return [body]


def status_line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"
