"""Starlette integration: the middleware in the right place, and endpoints that commit rows and response together.

idem = Idempotency(once, principal=user_of, required=["/payments"])
idem.protect(app)

async def pay(request):
async with sessions() as session, idem.transaction(session) as tx:
…
return tx.respond({"payment": payment.id}, status_code=201)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onceward.errors import ConfigurationError

from .asgi import AsgiIdempotency, IdempotencyMiddleware
from .semantics import RawResponse
from .statuses import WITHOUT_BODY
from .transaction import RequestTransaction

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.responses import Response

__all__ = ["Idempotency", "Transaction"]


class Transaction(RequestTransaction):
    """The block of `Idempotency.transaction`."""

    def respond(
        self, content: Any = None, status_code: int = 200, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Set the response that the block commits, and return it. Return it from the endpoint, too.

        Args:
            content: A `Response`, or the value of a JSON body.
            status_code: The HTTP status, if the content is not a `Response`.
            headers: The headers, if the content is not a `Response`.
        """
        from starlette.responses import JSONResponse, Response

        if isinstance(content, Response):
            return self.hand_over_response(content)
        if content is None and status_code in WITHOUT_BODY:
            return self.hand_over_response(Response(None, status_code, headers))
        return self.hand_over_response(JSONResponse(content, status_code, headers))

    def hand_over_response(self, response: Response) -> Response:
        """Hand over a complete response."""
        if not isinstance(getattr(response, "body", None), bytes):
            raise ConfigurationError(
                f"a {type(response).__name__} has no body before it is sent, so it cannot be stored with the rows",
                hint="pass a complete response",
            )
        self.hand_over(RawResponse(response.status_code, response.raw_headers, bytes(response.body)))
        return response


class Idempotency(AsgiIdempotency[Transaction]):
    """The settings of one API. `protect` adds the middleware."""

    _transaction_type = Transaction

    def protect(self, app: Starlette) -> None:
        """Add the middleware to `app`, inside all its other middleware, whatever the order of calls."""
        add_innermost(app, IdempotencyMiddleware, self._once, principal=self._principal, **self._choices)


def add_innermost(app: Any, middleware: Any, *arguments: Any, **choices: Any) -> None:
    """Add a middleware inside all others of a Starlette application.

    There, `principal` sees what other middleware has set (user, session), and the headers of that middleware (CORS,
    compression, request ids) are also added to replays.
    """
    from starlette.middleware import Middleware

    if app.middleware_stack is not None:
        raise ConfigurationError("the application has already started", hint="call protect(app) before it starts")
    app.user_middleware.append(Middleware(middleware, *arguments, **choices))
