"""FastAPI integration: declare the key as a dependency of a route, visible in the OpenAPI document.

    idem = Idempotency(once, principal=Depends(current_user_id))

    @app.post("/payments", dependencies=[idem.required], status_code=201)
    async def pay(order: Order, session: Session) -> Response:
        async with idem.transaction(session) as tx:
            …
            return tx.respond({"payment": payment.id})

    idem.protect(app)

The dependency marks a route. The middleware that `protect` adds does the work, and finds the marked routes itself. A
marked route that no middleware protects raises an error; it never runs unprotected.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Unpack

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once
from onceward.errors import ConfigurationError
from onceward.protocol.window import parse_window

from .config import RouteOptions
from .fastapi_routes import MarkedRoutes, RouteSettings, load_fastapi
from .response_buffer import Scope
from .semantics import PROBLEM_CONTENT_TYPE
from .starlette import Transaction as StarletteTransaction
from .starlette import add_innermost
from .statuses import WITHOUT_BODY

if TYPE_CHECKING:
    from fastapi import Response
    from fastapi.params import Depends
    from pydantic import TypeAdapter

__all__ = ["Idempotency"]

KEY_IN_SCOPE: Final = "onceward.key"

_PROBLEM_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
    },
}
_DESCRIPTIONS: Final = {
    400: "Idempotency-Key is missing or malformed",
    401: "An Idempotency-Key belongs to a user: authenticate first",
    409: "The same request is being processed; Retry-After tells when to send it again",
    410: "The request was done, but its response was not stored",
    413: "The body is too large",
    422: "This Idempotency-Key was used before with a different request",
    503: "Idempotency-Keys cannot be checked at the moment; Retry-After tells when to send the request again",
}


class Transaction(StarletteTransaction):
    """Commits the session together with the response."""

    def respond(
        self, content: Any = None, status_code: int | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Hand over the response: a `Response`, or content for a JSON response. Return the result from the endpoint.

        The route's `response_model` and `status_code` apply to content, as if the endpoint had returned it.
        """
        from fastapi import Response

        if isinstance(content, Response):
            return self.hand_over_response(content)
        route = self.request.get("route")
        status = status_code or getattr(route, "status_code", None) or 200
        chosen = None if headers is None else dict(headers)
        if content is None and status in WITHOUT_BODY:
            return self.hand_over_response(Response(None, status, chosen))
        body = _json(content, route)
        return self.hand_over_response(Response(body, status, chosen, media_type="application/json"))


def _json(content: Any, route: Any) -> bytes:
    model = getattr(route, "response_model", None)
    if model is None:
        from fastapi.encoders import jsonable_encoder
        from fastapi.responses import JSONResponse

        return bytes(JSONResponse(jsonable_encoder(content)).body)
    adapter = _adapter(model)
    return adapter.dump_json(
        adapter.validate_python(content, from_attributes=True),
        include=route.response_model_include,
        exclude=route.response_model_exclude,
        by_alias=route.response_model_by_alias,
        exclude_unset=route.response_model_exclude_unset,
        exclude_defaults=route.response_model_exclude_defaults,
        exclude_none=route.response_model_exclude_none,
    )


@lru_cache(maxsize=1024)
def _adapter(model: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(model)


class Idempotency:
    """The settings of one API. `required` and `optional` are route dependencies; `protect` adds the middleware.

    Args:
        once: The client that stores responses.
        principal: Returns the authenticated owner of the key as a str, or None: a function of the ASGI scope, or a
            dependency of FastAPI, `Depends(current_user_id)`.
        choices: Settings of all routes, such as `window` and `max_body`. The HTTP guide lists them.
    """

    responses: Final[dict[int | str, dict[str, Any]]] = {
        status: {"description": description, "content": {PROBLEM_CONTENT_TYPE.decode(): {"schema": _PROBLEM_SCHEMA}}}
        for status, description in _DESCRIPTIONS.items()
    }
    """The responses that the middleware itself may send. `protect` adds them to the OpenAPI document."""

    required: Depends
    """The dependency of a route that requires a key."""

    optional: Depends
    """The dependency of a route that accepts a key."""

    def __init__(
        self,
        once: AsyncOnce | Once,
        *,
        principal: Callable[[Scope], Any] | Depends,
        **choices: Unpack[RouteOptions],
    ) -> None:
        self._once = once
        self._choices = choices
        self._routes = MarkedRoutes(once, principal)
        self.required = self.route()
        self.optional = self.route(required=False)

    def route(self, *, required: bool = True, **choices: Unpack[RouteOptions]) -> Depends:
        """Return a dependency for routes with their own settings, which override those of this object.

        Args:
            required: Whether requests without an `Idempotency-Key` are refused with 400. If False, they pass through.
            choices: Settings as for `IdempotencyMiddleware`, such as `window` and `lease`.

        Raises:
            ConfigurationError: A setting selects routes or methods. The dependency itself does that.
        """
        for name in ("required", "optional", "methods"):
            if name in choices or name in self._choices:
                raise ConfigurationError(
                    f"{name}= is declared on the routes, not here", hint="use dependencies=[idempotency.required]"
                )
        own: RouteOptions = {**self._choices, **choices} if choices else self._choices
        window = str(parse_window(own.get("window", self._once.policy.window)))
        call = _dependency(window, required=required)
        self._routes.mark(call, RouteSettings(required, own))
        depends: Depends = load_fastapi().Depends(call)
        return depends

    def protect(self, app: Any) -> None:
        """Protect the routes of `app` that have one of the dependencies, and document their responses.

        Call it before the application starts. Routes may be declared before or after. The middleware runs inside all
        other middleware of the application, whatever the order of calls.
        """
        add_innermost(app, self._routes.middleware, app)  # called when the application starts, with all its routes
        self._routes.document_responses(app, self.responses)

    def transaction(self, session: Any) -> Transaction:
        """Return a block that commits the `session` together with the response: `with`, or `async with` if it is async.

        The block commits at its end. It rolls back if it raises, or if it ends without `tx.respond(…)`.
        """
        return Transaction(session)


def _dependency(window: str, *, required: bool) -> Callable[..., Any]:
    fastapi = load_fastapi()

    def idempotency_key(request: Any, idempotency_key: str | None) -> str | None:
        key: str | None = request.scope.get(KEY_IN_SCOPE)
        if key is None and (required or idempotency_key is not None):
            raise ConfigurationError(
                f"{request.method} {request.scope['path']} uses Idempotency-Keys, but no middleware protects it",
                hint="call idempotency.protect(app) on the application that has the route, before it starts",
            )
        return key

    description = (
        "A string in quotes: a new one for each new request, and the same one for every retry."
        f" It is remembered for: {window}."
    )
    header = fastapi.Header(alias="Idempotency-Key", description=description, examples=['"8e03978e-40d5-43e8-bc93"'])
    parameter = inspect.Parameter
    idempotency_key.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # FastAPI reads it
        [
            parameter("request", parameter.KEYWORD_ONLY, annotation=fastapi.Request),
            parameter(
                "idempotency_key",
                parameter.KEYWORD_ONLY,
                annotation=_annotated(str if required else str | None, header),
                default=parameter.empty if required else None,
            ),
        ]
    )
    return idempotency_key


def _annotated(kind: Any, header: Any) -> Any:
    from typing import Annotated

    return Annotated[kind, header]
