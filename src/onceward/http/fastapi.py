"""FastAPI integration: declare the key as a dependency of a route, visible in the OpenAPI document.

    idempotency = Idempotency(once, principal=user_of)

    @app.post("/payments", dependencies=[idempotency.required], responses=idempotency.responses)
    def pay(…): …

    idempotency.protect(app)

The dependency marks a route. The middleware that `protect` adds does the work, and finds the marked routes itself. A
marked route that no middleware protects raises an error; it never runs unprotected.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, Unpack

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once
from onceward.errors import ConfigurationError, MissingExtra
from onceward.protocol.window import parse_window

from .asgi import IdempotencyMiddleware
from .config import SAFE_METHODS, IdempotencyOptions
from .response_buffer import App, Scope
from .routes import Routes
from .semantics import PROBLEM_CONTENT_TYPE

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
}


class Idempotency:
    """The settings of one API. `required` and `optional` are route dependencies; `protect` adds the middleware."""

    responses: Final[dict[int | str, dict[str, Any]]] = {
        status: {"description": description, "content": {PROBLEM_CONTENT_TYPE.decode(): {"schema": _PROBLEM_SCHEMA}}}
        for status, description in _DESCRIPTIONS.items()
    }
    """For `responses=` of a route: the responses that the middleware itself may send."""

    def __init__(
        self, once: AsyncOnce | Once, *, principal: Callable[[Scope], Any], **choices: Unpack[IdempotencyOptions]
    ) -> None:
        for name in ("required", "optional", "methods"):
            if name in choices:
                raise ConfigurationError(
                    f"{name}= is declared on the routes, not here", hint="use dependencies=[idempotency.required]"
                )
        self._once = once
        self._principal = principal
        self._choices = choices
        window = str(parse_window(choices.get("window", once.policy.window)))
        self._calls = {_dependency(window, required=required): required for required in (True, False)}
        self.required, self.optional = map(_fastapi().Depends, self._calls)

    def protect(self, app: Any) -> None:
        """Protect the routes of this application that have one of the dependencies."""
        app.add_middleware(_RouteMiddleware, self._once, self._principal, self._choices, lambda: self._routes(app))

    def _routes(self, app: Any) -> dict[str, Routes]:
        found: dict[str, list[tuple[str, bool | None]]] = defaultdict(list)
        for route in _iter_routes(app.routes):
            required = self._requires_key(getattr(route, "dependant", None))
            for method in (getattr(route, "methods", None) or set()) - SAFE_METHODS:
                found[method].append((route.path, required))
        return {
            method: _OrderedRoutes(routes)
            for method, routes in found.items()
            if any(required is not None for _, required in routes)
        }

    def _requires_key(self, dependant: Any) -> bool | None:
        """Return whether the route's strictest dependency requires a key. None: it has no such dependency."""
        if dependant is None:
            return None
        inner = [self._requires_key(dependency) for dependency in dependant.dependencies]
        answers = [required for required in (self._calls.get(dependant.call), *inner) if required is not None]
        return any(answers) if answers else None


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
    """Created when the application starts, because only then are all its routes known."""

    def __init__(
        self,
        app: App,
        once: AsyncOnce | Once,
        principal: Callable[[Scope], Any],
        choices: IdempotencyOptions,
        routes: Callable[[], dict[str, Routes]],
    ) -> None:
        self._find = routes
        super().__init__(app, once, principal=principal, **choices)

    def _select_routes(self) -> dict[str, Routes]:
        return self._find()


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
