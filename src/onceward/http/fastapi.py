"""FastAPI: the key as a dependency of a route, which shows in its OpenAPI document.

    idempotency = Idempotency(once, principal=user_of)

    @app.post("/payments", dependencies=[idempotency.required], responses=idempotency.responses)
    def pay(…): …

    idempotency.protect(app)

The dependency says where; the middleware that `protect` adds does the work, and reads from the routes which of them
have it. A route with the dependency that no middleware guards is an error, never unprotected.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, Unpack

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once
from onceward.errors import ConfigurationError, MissingExtra
from onceward.protocol.window import window_of

from .asgi import IdempotencyMiddleware
from .config import SAFE, IdempotencyOptions
from .response_buffer import App, Scope
from .routes import Routes
from .semantics import PROBLEM

KEY: Final = "onceward.key"

_PROBLEM: Final = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
    },
}
_TOLD: Final = {
    400: "Idempotency-Key is missing or malformed",
    401: "A key belongs to somebody: authenticate first",
    409: "The same request is being worked on; Retry-After says when to ask again",
    410: "The request was done, but its answer was too large to be kept",
    413: "The body is too large",
    422: "This Idempotency-Key came before with another request",
}


class Idempotency:
    """The choices of one API. `required` and `optional` are dependencies of routes, `protect` adds the middleware."""

    responses: Final[dict[int | str, dict[str, Any]]] = {
        status: {"description": told, "content": {PROBLEM.decode(): {"schema": _PROBLEM}}}
        for status, told in _TOLD.items()
    }
    """For `responses=` of a route: what the middleware may answer instead of it."""

    def __init__(
        self, once: AsyncOnce | Once, *, principal: Callable[[Scope], Any], **choices: Unpack[IdempotencyOptions]
    ) -> None:
        for name in ("required", "optional", "methods"):
            if name in choices:
                raise ConfigurationError(
                    f"{name}= is said by the routes themselves", hint="dependencies=[idempotency.required]"
                )
        self._once = once
        self._principal = principal
        self._choices = choices
        window = str(window_of(choices.get("window", once.policy.window)))
        self._calls = {_dependency(window, required=required): required for required in (True, False)}
        self.required, self.optional = map(_depends, self._calls)

    def protect(self, app: Any) -> None:
        """Guard the routes of this application that have one of the dependencies."""
        app.add_middleware(_OfRoutes, self._once, self._principal, self._choices, lambda: self._routes(app))

    def _routes(self, app: Any) -> dict[str, Routes]:
        found: dict[str, list[tuple[str, bool | None]]] = defaultdict(list)
        for route in _each(app.routes):
            required = self._wants(getattr(route, "dependant", None))
            for method in (getattr(route, "methods", None) or set()) - SAFE:
                found[method].append((route.path, required))
        return {
            method: _InOrder(routes) for method, routes in found.items() if any(one is not None for _, one in routes)
        }

    def _wants(self, dependant: Any) -> bool | None:
        """Whether a key is required, by the strictest of all the dependencies of a route."""
        if dependant is None:
            return None
        inner = [self._wants(one) for one in dependant.dependencies]
        wanted = [one for one in (self._calls.get(dependant.call), *inner) if one is not None]
        return any(wanted) if wanted else None


class _InOrder(Routes):
    """The routes of one method: the first that matches holds, as in the router, also if it wants no keys."""

    def __init__(self, routes: Iterable[tuple[str, bool | None]]) -> None:
        from starlette.routing import compile_path

        super().__init__((), ())
        for path, required in routes:
            pattern, _, holes = compile_path(path)
            if holes:
                self._patterns.append((pattern, required))
            else:
                before = (one for earlier, one in self._patterns if earlier.fullmatch(path) is not None)
                self._exact.setdefault(path, next(before, required))


class _OfRoutes(IdempotencyMiddleware):
    """Made when the application starts: then its routes are known."""

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

    def _chosen(self) -> dict[str, Routes]:
        return self._find()


def _dependency(window: str, *, required: bool) -> Callable[..., Any]:
    fastapi = _fastapi()

    def idempotency_key(request: Any, idempotency_key: str | None) -> str | None:
        key: str | None = request.scope.get(KEY)
        if key is None and (required or idempotency_key is not None):
            raise ConfigurationError(
                f"{request.method} {request.url.path} wants Idempotency-Keys, but nothing guards it",
                hint="call idempotency.protect(app), on the application that has the route, before it starts",
            )
        return key

    told = f"A string in quotes: new for new work, the same for every attempt at it. How long it is known: {window}."
    header = fastapi.Header(alias="Idempotency-Key", description=told, examples=['"8e03978e-40d5-43e8-bc93"'])
    parameter = inspect.Parameter
    idempotency_key.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what FastAPI reads
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


def _each(routes: Any) -> Iterable[Any]:
    """Also those of included routers, which FastAPI keeps as they are since it has a way to ask for them."""
    _fastapi()
    from fastapi import routing

    each: Callable[[Any], Iterable[Any]] = getattr(routing, "iter_route_contexts", iter)
    return each(routes)


def _depends(call: Callable[..., Any]) -> Any:
    return _fastapi().Depends(call)


def _fastapi() -> Any:
    try:
        import fastapi
    except ImportError:
        raise MissingExtra("FastAPI is not installed", hint="pip install fastapi") from None
    return fastapi
