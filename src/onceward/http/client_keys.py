"""Add idempotency keys to outgoing httpx requests. The key of a request is the same on every attempt of the work.

It is an `httpx.Auth`, because httpx uses the same auth object for sync and async clients and for its own retries.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Generator
from typing import Final, Literal

from onceward.engine.attempt import Attempt, current
from onceward.errors import ClaimError, ConfigurationError, MissingExtra, OncewardWarning

from .sent_requests import UNKNOWN_BODY, RequestLine, SentRequest, current_step, request_log, step

try:
    import httpx
except ImportError as error:
    raise MissingExtra("outgoing calls need httpx", hint='pip install "onceward[httpx]"') from error

__all__ = ["IdempotencyKeys", "step"]

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing (RFC 9110)."""

HEADER: Final = "Idempotency-Key"

Outside = Literal["raise", "warn"]


class IdempotencyKeys(httpx.Auth):
    """`httpx.Client(auth=IdempotencyKeys())`: adds the claim's derived key to every POST, PUT, PATCH and DELETE.

    `header` is the name that the remote API uses. `quoted=True` puts the key in quotes, as the draft standard
    requires. `auth` is another auth of the client. A request that already has the header keeps it. Outside a claim, a
    retry would not have the same key: `outside="raise"` refuses to send, `"warn"` sends without a key.
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
                f"{auth!r} is not an httpx.Auth with an auth_flow", hint="such as httpx.BasicAuth(user, password)"
            )
        self._header = header
        self._quoted = quoted
        self._auth = inner
        self._outside = outside
        self.requires_request_body = inner.requires_request_body
        self.requires_response_body = inner.requires_response_body

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the key to a `request`. httpx calls this for every request, sync or async.

        It yields the request, and closes with the response. httpx closes the generator if no response arrives.
        """
        sent = self._add_key(request)
        status: int | None = None
        flow = self._auth.auth_flow(request)
        try:
            outgoing = next(flow)
            while True:
                status = None
                response = yield outgoing
                status = response.status_code
                outgoing = flow.send(response)
        except StopIteration:  # the other auth is done
            return
        finally:
            if sent is not None:
                sent.set_result(status)

    def _add_key(self, request: httpx.Request) -> SentRequest | None:
        """Add the key to the request. Return its log entry if the request is identified by its order."""
        if request.method.upper() in SAFE_METHODS or self._header in request.headers:
            return None
        attempt = current()
        if attempt is None:
            self._report_outside(request)
            return None
        line = _request_line(request)
        log, name = request_log(attempt), current_step()
        if name is not None:
            self._set_header(request, attempt, log.named(name, line))
            return None
        sent = log.next(line, _body_hash(request))
        self._set_header(request, attempt, f"{line.text} #{sent.ordinal}")
        return sent

    def _set_header(self, request: httpx.Request, attempt: Attempt, purpose: str) -> None:
        key = attempt.derived_key(purpose)
        request.headers[self._header] = f'"{key}"' if self._quoted else key

    def _report_outside(self, request: httpx.Request) -> None:
        what = f"{_request_line(request).display} is sent outside a claim"
        if self._outside == "raise":
            raise ClaimError(
                f"{what}, so a retry would not have the same key",
                hint='call it inside a decorated function or a with-claim block, or choose outside="warn"',
            )
        warnings.warn(
            f"{what}: it has no {self._header}, so a retry would be processed again", OncewardWarning, stacklevel=2
        )


def _request_line(request: httpx.Request) -> RequestLine:
    """Return method and URL. The displayed form has no query and no password, because both may be secret."""
    method, url = request.method.upper(), request.url
    return RequestLine(f"{method} {url}", f"{method} {url.scheme}://{url.host}{url.path}")


def _body_hash(request: httpx.Request) -> bytes:
    """Return the hash of the body. A streamed body has none: hashing it would require buffering."""
    try:
        return hashlib.sha256(request.content).digest()
    except httpx.RequestNotRead:
        return UNKNOWN_BODY
