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
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once
from onceward.errors import ConfigurationError, MissingExtra
from onceward.protocol.window import parse_window

from .asgi import Authenticated, IdempotencyMiddleware, send_response
from .body import BodyTooLarge
from .config import SAFE_METHODS, RouteOptions
from .fastapi_principal import DependencyPrincipal
from .fastapi_transaction import Transaction
from .response_buffer import App, Receive, Scope, Send
from .routes import Routes
from .semantics import BODY_TOO_LARGE, PROBLEM_CONTENT_TYPE
from .starlette import add_innermost

if TYPE_CHECKING:
    from fastapi.params import Depends

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
    410: "The request was done, but its response was too large to store",
    413: "The body is too large",
    422: "This Idempotency-Key was used before with a different request",
    503: "Idempotency-Keys cannot be checked at the moment; Retry-After tells when to send the request again",
}


class _RouteSettings(NamedTuple):
    """The settings of the routes that have one dependency."""

    required: bool
    choices: RouteOptions


class Idempotency:
    """The settings of one API. `required` and `optional` are route dependencies; `protect` adds the middleware."""

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
        self._principal = principal
        self._choices = choices
        self._calls: dict[Any, _RouteSettings] = {}
        self.required = self.route()
        self.optional = self.route(required=False)

    def route(self, *, required: bool = True, **choices: Unpack[RouteOptions]) -> Depends:
        """Return a dependency for routes with settings of their own, in addition to those of this object."""
        for name in ("required", "optional", "methods"):
            if name in choices or name in self._choices:
                raise ConfigurationError(
                    f"{name}= is declared on the routes, not here", hint="use dependencies=[idempotency.required]"
                )
        own: RouteOptions = {**self._choices, **choices} if choices else self._choices
        window = str(parse_window(own.get("window", self._once.policy.window)))
        call = _dependency(window, required=required)
        self._calls[call] = _RouteSettings(required, own)
        depends: Depends = _fastapi().Depends(call)
        return depends

    def protect(self, app: Any) -> None:
        """Protect the routes of this application that have one of the dependencies, and document their responses.

        The middleware runs inside of all others of the application, whatever the order of calls.
        """
        add_innermost(app, _ProtectedRoutes, self, app)
        add_responses(app, self)

    def transaction(self, session: Any) -> Transaction:
        """Return a block that commits the session together with the response: `with`, or `async with` if it is async.

        The block commits at its end. It rolls back if it raises, or if it ends without `tx.respond(…)`.
        """
        return Transaction(session)

    def protected_routes(self, app: Any) -> list[tuple[str, set[str], _RouteSettings | None]]:
        """Return path, methods and settings of all routes, in their order. Without settings: no dependency."""
        return [
            (route.path, methods, self._settings_of(getattr(route, "dependant", None)))
            for route in _iter_routes(app.routes)
            if (methods := (getattr(route, "methods", None) or set()) - SAFE_METHODS)
        ]

    def _settings_of(self, dependant: Any) -> _RouteSettings | None:
        """Return the settings of the route's strictest dependency. None: it has no such dependency."""
        if dependant is None:
            return None
        inner = [self._settings_of(dependency) for dependency in dependant.dependencies]
        found = [one for one in (self._calls.get(dependant.call), *inner) if one is not None]
        return max(found, key=lambda one: one.required, default=None)

    def middleware(self, app: App, fastapi_app: Any) -> App:
        """Return the application behind one middleware for each group of routes with the same settings."""
        routes = self.protected_routes(fastapi_app)
        for settings in {id(one.choices): one for _, _, one in routes if one is not None}.values():
            app = _RouteMiddleware(
                app, self._once, self._principal, settings.choices, routes=routes, fastapi_app=fastapi_app
            )
        return app


class _ProtectedRoutes:
    """Created when the application starts, because only then are all its routes known."""

    def __init__(self, app: App, idempotency: Idempotency, fastapi_app: Any) -> None:
        self._app = idempotency.middleware(app, fastapi_app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class _OrderedRoutes(Routes):
    """The routes of one method. As in the router, the first match decides, even if it uses no keys."""

    def __init__(self, routes: Iterable[tuple[str, bool | None]]) -> None:
        from starlette.routing import compile_path

        super().__init__((), ())
        for path, required in routes:
            pattern, _, parameters = compile_path(path)
            if parameters:
                self._patterns.append((pattern, required))
            else:
                earlier = (decision for pattern, decision in self._patterns if pattern.fullmatch(path) is not None)
                self._exact.setdefault(path, next(earlier, required))


class _RouteMiddleware(IdempotencyMiddleware):
    """The middleware of the routes that have these settings."""

    _dependency: DependencyPrincipal | None = None

    def __init__(
        self,
        app: App,
        once: AsyncOnce | Once,
        principal: Any,
        choices: RouteOptions,
        *,
        routes: Iterable[tuple[str, set[str], _RouteSettings | None]],
        fastapi_app: Any,
    ) -> None:
        self._own = [
            (path, methods, one.required if one is not None and one.choices is choices else None)
            for path, methods, one in routes
        ]
        if not isinstance(principal, _fastapi().params.Depends):
            super().__init__(app, once, principal=principal, **choices)
            return
        super().__init__(app, once, principal=_no_principal, **choices)
        own = [(path, methods) for path, methods, required in self._own if required is not None]
        self._dependency = DependencyPrincipal(fastapi_app, principal, own, self.config.max_body)

    def _select_routes(self) -> dict[str, Routes]:
        found: dict[str, list[tuple[str, bool | None]]] = defaultdict(list)
        for path, methods, required in self._own:
            for method in methods:
                found[method].append((path, required))
        return {
            method: _OrderedRoutes(routes)
            for method, routes in found.items()
            if any(required is not None for _, required in routes)
        }

    async def _authenticate(self, scope: Scope, receive: Receive, send: Send) -> Authenticated | None:
        if self._dependency is None:
            return await super()._authenticate(scope, receive, send)
        try:
            found, receive = await self._dependency.find(scope, receive, send)
        except BodyTooLarge:
            await send_response(send, self.config.problem_response(BODY_TOO_LARGE))
            return None
        return await self._admit(found[0], receive, send) if found else None


def _no_principal(_scope: Scope) -> None:
    """Stand in for `principal`: the dependency determines it."""


def add_responses(app: Any, idempotency: Idempotency) -> None:
    """Add the middleware's own responses to the OpenAPI document of the application."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        from starlette.routing import compile_path

        document: dict[str, Any] = original()
        for path, methods, settings in idempotency.protected_routes(app):
            operations = document.get("paths", {}).get(compile_path(path)[1], {}) if settings else {}
            for method in methods & {name.upper() for name in operations}:
                responses = operations[method.lower()].setdefault("responses", {})
                for status, response in idempotency.responses.items():
                    responses.setdefault(str(status), response)
        return document

    app.openapi = openapi


def _dependency(window: str, *, required: bool) -> Callable[..., Any]:
    fastapi = _fastapi()

    def idempotency_key(request: Any, idempotency_key: str | None) -> str | None:
        key: str | None = request.scope.get(KEY_IN_SCOPE)
        if key is None and (required or idempotency_key is not None):
            raise ConfigurationError(
                f"{request.method} {request.url.path} uses Idempotency-Keys, but no middleware protects it",
                hint="call idempotency.protect(app) on the application that has the route, before it starts",
            )
        return key

    description = (
        "A string in quotes: a new one for each new request, the same one for every retry."
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


def _iter_routes(routes: Any) -> Iterable[Any]:
    """Return all routes. Recent versions of FastAPI keep included routers nested, with a function to flatten them."""
    _fastapi()
    from fastapi import routing

    each: Callable[[Any], Iterable[Any]] = getattr(routing, "iter_route_contexts", iter)
    return each(routes)


def _fastapi() -> Any:
    try:
        import fastapi
    except ImportError:
        raise MissingExtra("FastAPI is not installed", hint="pip install fastapi") from None
    return fastapi
