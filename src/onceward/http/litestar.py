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

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .asgi import AsgiIdempotency, IdempotencyMiddleware
from .semantics import RawResponse
from .statuses import WITHOUT_BODY
from .transaction import RequestTransaction

if TYPE_CHECKING:
    from litestar import Response
    from litestar.middleware import DefineMiddleware


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


class Idempotency(AsgiIdempotency[Transaction]):
    """The settings of one API. Litestar runs `middleware` in the order of its list."""

    _transaction_type = Transaction

    @property
    def middleware(self) -> DefineMiddleware:
        """The entry for `middleware=[…]` of the application. Put it last: authentication must run before it."""
        from litestar.middleware import DefineMiddleware

        return DefineMiddleware(IdempotencyMiddleware, once=self._once, principal=self._principal, **self._choices)
