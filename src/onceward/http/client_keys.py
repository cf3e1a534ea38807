"""Outgoing calls: every unsafe request of a piece of work carries a key that is the same on every attempt.

An `httpx.Auth`, because one such object serves both colours, each client and every retry of its own.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Generator
from typing import Final, Literal

from onceward.engine.attempt import Attempt, current
from onceward.errors import ClaimError, ConfigurationError, MissingExtra, OncewardWarning

from .sent_requests import UNKNOWN_BODY, RequestLine, Sent, log_of, named_step, step

try:
    import httpx
except ImportError as error:
    raise MissingExtra("outgoing calls need httpx", hint='pip install "onceward[httpx]"') from error

__all__ = ["IdempotencyKeys", "step"]

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing (RFC 9110)."""

HEADER: Final = "Idempotency-Key"

Outside = Literal["raise", "warn"]


class IdempotencyKeys(httpx.Auth):
    """`httpx.Client(auth=IdempotencyKeys())`: adds the claim's derived key to every POST, PUT, PATCH and DELETE.

    `header` is what the remote calls it; `quoted=True` writes it as the draft standard wants it, in quotes. `auth` is
    another auth that the client has. A request that has the header already keeps it. Outside of a claim there is no key
    that a retry would have, too: `outside="raise"` refuses to send, `"warn"` sends without one.
    """

    def __init__(
        self,
        *,
        header: str = HEADER,
        quoted: bool = False,
        auth: httpx.Auth | None = None,
        outside: Outside = "raise",
    ) -> None:
        if outside not in ("raise", "warn"):
            raise ConfigurationError(f"outside cannot be {outside!r}", hint="choose one of: raise, warn")
        inner = httpx.Auth() if auth is None else auth
        if not isinstance(inner, httpx.Auth) or (auth is not None and type(inner).auth_flow is httpx.Auth.auth_flow):
            raise ConfigurationError(
                f"{auth!r} is no httpx.Auth with an auth_flow", hint="such as httpx.BasicAuth(user, password)"
            )
        self._header = header
        self._quoted = quoted
        self._auth = inner
        self._outside = outside
        self.requires_request_body = inner.requires_request_body
        self.requires_response_body = inner.requires_response_body

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Told to httpx for every request of either colour. It closes the flow if no answer comes."""
        sent = self._added(request)
        status: int | None = None
        flow = self._auth.auth_flow(request)
        try:
            asked = next(flow)
            while True:
                status = None
                response = yield asked
                status = response.status_code
                asked = flow.send(response)
        except StopIteration:  # the other auth is content
            return
        finally:
            if sent is not None:
                sent.ended(status)

    def _added(self, request: httpx.Request) -> Sent | None:
        """Put the key into the request. What is counted by its order is returned, so that its end can be told."""
        if request.method.upper() in SAFE or self._header in request.headers:
            return None
        attempt = current()
        if attempt is None:
            self._complain(request)
            return None
        line = _line_of(request)
        log, name = log_of(attempt), named_step()
        if name is not None:
            self._write(request, attempt, log.named(name, line))
            return None
        sent = log.next(line, _body_of(request))
        self._write(request, attempt, f"{line.text} #{sent.ordinal}")
        return sent

    def _write(self, request: httpx.Request, attempt: Attempt, of: str) -> None:
        key = attempt.derived_key(of)
        request.headers[self._header] = f'"{key}"' if self._quoted else key

    def _complain(self, request: httpx.Request) -> None:
        what = f"{_line_of(request).shown} is sent outside of a claim"
        if self._outside == "raise":
            raise ClaimError(
                f"{what}, so that no retry would have its key",
                hint='call it inside a decorated function or a with-claim block, or choose outside="warn"',
            )
        warnings.warn(f"{what}: it has no {self._header}, and a retry is done again", OncewardWarning, stacklevel=2)


def _line_of(request: httpx.Request) -> RequestLine:
    """People see neither the query nor a password: both may be secret."""
    method, url = request.method.upper(), request.url
    return RequestLine(f"{method} {url}", f"{method} {url.scheme}://{url.host}{url.path}")


def _body_of(request: httpx.Request) -> bytes:
    """Its hash. A streamed body would have to be kept in memory for it."""
    try:
        return hashlib.sha256(request.content).digest()
    except httpx.RequestNotRead:
        return UNKNOWN_BODY
