"""Flask integration: the middleware, and views that commit rows and response together.

idem = Idempotency(once, principal=lambda: session.get("user"), required=["/payments"])
idem.protect(app)

@app.post("/payments")
def pay():
with idem.transaction(db.session) as tx:
…
return tx.respond({"payment": payment.id}, 201)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Unpack

from onceward.client.sync import Once
from onceward.errors import ConfigurationError

from .config import IdempotencyOptions
from .semantics import RawResponse
from .transaction import RequestTransaction
from .wsgi import IdempotencyMiddleware

if TYPE_CHECKING:
    from flask import Flask, Response


class Idempotency:
    """The settings of one application.

    Args:
        once: The client that stores responses.
        principal: `principal()` returns the authenticated owner of the key as a str, or None. It runs in the request's
            context: it can use `request` and `session`, but cannot read the body. It may call `abort(401)`: the
            response is that of the application's error handlers. `reauthorize=` is called in the same way.
        choices: Which routes use keys, and how, as for `onceward.http.wsgi.IdempotencyMiddleware`.
    """

    def __init__(
        self, once: Once, *, principal: Callable[[], str | None], **choices: Unpack[IdempotencyOptions]
    ) -> None:
        self._once = once
        self._principal = principal
        self._choices = choices

    def protect(self, app: Flask) -> None:
        """Wrap the WSGI application of `app` in the middleware. If `principal` raises, its error response is sent."""
        choices = {**self._choices}
        if callable(reauthorize := choices.get("reauthorize")):
            choices["reauthorize"] = _in_context(app, reauthorize)
        principal = _in_context(app, self._principal)
        protected = IdempotencyMiddleware(app.wsgi_app, self._once, principal=principal, **choices)  # type: ignore[arg-type]  # a copy of the settings

        def wsgi_app(environ: Any, start_response: Any) -> Iterable[bytes]:
            try:
                return protected(environ, start_response)
            except _Refused as refused:
                return refused.response(environ, start_response)

        app.wsgi_app = wsgi_app  # type: ignore[method-assign]  # as Flask documents for middlewares

    def transaction(self, session: Any) -> Transaction:
        """Return a `with` block that commits the `session` together with the response.

        The block commits at its end. It rolls back if it raises, or if it ends without `tx.respond(…)`.
        """
        return Transaction(session)


class Transaction(RequestTransaction):
    """The block of `Idempotency.transaction`."""

    def respond(
        self, content: Any = "", status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Set the response that the block commits, and return it. Return it from the view, too.

        Args:
            content: Whatever a view may return: text, a dict, a tuple or a `Response`.
            status: The HTTP status. By default that of the content.
            headers: More headers. They replace those of the content.
        """
        import flask

        response = flask.make_response(content)
        if status is not None:
            response.status_code = status
        response.headers.update(headers or {})
        body = response.get_data()
        pairs = response.get_wsgi_headers(flask.request.environ)
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
        self.hand_over(RawResponse(response.status_code, raw, body))
        return response


def _in_context(app: Flask, hook: Callable[[], Any]) -> Callable[[Any], Any]:
    """Return a function of the environ that calls a hook in the context of the request, without its body."""
    if iscoroutinefunction(hook):
        raise ConfigurationError(f"{hook!r} is async, and WSGI cannot await it", hint="declare it with def")

    def call(environ: Any) -> Any:
        from werkzeug.exceptions import HTTPException

        with app.request_context({**environ, "wsgi.input": _NO_BODY}):
            try:
                return hook()
            except HTTPException as error:
                raise _Refused(app.make_response(app.handle_user_exception(error))) from error

    return call


class _Refused(Exception):
    """`principal` or `reauthorize` has refused the request, as with `abort(401)`."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


class _NoBody:
    """The body of a request in `principal` and `reauthorize`. For the first, it is not read yet."""

    def read(self, size: int = -1) -> bytes:  # noqa: ARG002 (as files have it)
        raise ConfigurationError(
            "principal= and reauthorize= cannot read the body, which is read after the request is authenticated",
            hint="use the headers, the cookies or the session",
        )

    readline = read


_NO_BODY = _NoBody()
