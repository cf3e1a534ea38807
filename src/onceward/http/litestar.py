"""Litestar integration: the middleware, and handlers that commit rows and response together.

idem = Idempotency(once, principal=user_of, required=["/payments"])

@post("/payments")
async def pay(data: Order, session: AsyncSession) -> Response:
async with idem.transaction(session) as tx:
…
return tx.respond({"payment": payment.id}, status_code=201)

app = Litestar([pay], middleware=[idem.middleware])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once

from .asgi import IdempotencyMiddleware
from .config import IdempotencyOptions
from .response_buffer import Scope
from .semantics import RawResponse
from .statuses import WITHOUT_BODY
from .transaction import RequestTransaction

if TYPE_CHECKING:
    from litestar import Response
    from litestar.middleware import DefineMiddleware


class Idempotency:
    """The settings of one API. Litestar runs `middleware` in the order of its list.

    Args:
        once: The client that stores responses.
        principal: `principal(scope)` returns the authenticated owner of the key as a str, or None. It may be async.
        choices: Which routes use keys, and how, as for `onceward.http.asgi.IdempotencyMiddleware`.
    """

    def __init__(
        self, once: AsyncOnce | Once, *, principal: Callable[[Scope], Any], **choices: Unpack[IdempotencyOptions]
    ) -> None:
        self._once = once
        self._principal = principal
        self._choices = choices

    @property
    def middleware(self) -> DefineMiddleware:
        """The entry for `middleware=[…]` of the application. Put it last: authentication must run before it."""
        from litestar.middleware import DefineMiddleware

        return DefineMiddleware(IdempotencyMiddleware, once=self._once, principal=self._principal, **self._choices)

    def transaction(self, session: Any) -> Transaction:
        """Return a block that commits the `session` together with the response: `with`, or `async with` if it is async.

        The block commits at its end. It rolls back if it raises, or if it ends without `tx.respond(…)`.
        """
        return Transaction(session)


class Transaction(RequestTransaction):
    """The block of `Idempotency.transaction`."""

    def respond(
        self, content: Any = None, status_code: int = 200, headers: Mapping[str, str] | None = None
    ) -> Response[bytes]:
        """Set the JSON response that the block commits, and return it. Return it from the handler, too.

        Args:
            content: The value of the JSON body. Bytes are sent as they are.
            status_code: The HTTP status.
            headers: More headers. `content-type` replaces the default.
        """
        from litestar import Response
        from litestar.serialization import encode_json

        if content is None and status_code in WITHOUT_BODY:
            content = b""
        body = content if isinstance(content, bytes) else encode_json(content)
        chosen = {"content-type": "application/json", **{name.lower(): text for name, text in (headers or {}).items()}}
        raw = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in chosen.items()]
        if status_code not in WITHOUT_BODY:
            raw.append((b"content-length", b"%d" % len(body)))
        self.hand_over(RawResponse(status_code, raw, body))
        return Response(body, status_code=status_code, headers=chosen, media_type=chosen["content-type"])
