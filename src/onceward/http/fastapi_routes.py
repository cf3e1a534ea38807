"""The routes of a FastAPI application that are marked by a dependency, and their middleware."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from onceward.client.aio import AsyncOnce
from onceward.client.sync import Once
from onceward.errors import MissingExtra

from .asgi import Authenticated, IdempotencyMiddleware, send_response
from .body import BodyTooLarge
from .config import SAFE_METHODS, RouteOptions
from .fastapi_principal import DependencyPrincipal
from .response_buffer import App, Receive, Scope, Send
from .routes import Routes
from .semantics import BODY_TOO_LARGE


class RouteSettings(NamedTuple):
    """The settings of the routes that have one dependency."""

    required: bool
    choices: RouteOptions


class FoundRoute(NamedTuple):
    """A route of the application. Without settings: it has no such dependency."""

    path: str
    methods: set[str]
    settings: RouteSettings | None


class MarkedRoutes:
    """Knows the dependencies that mark routes, and finds these routes."""

    def __init__(self, once: AsyncOnce | Once, principal: Any) -> None:
        self._once = once
        self._principal = principal
        self._calls: dict[Any, RouteSettings] = {}

    def mark(self, call: Callable[..., Any], settings: RouteSettings) -> None:
        """Let routes that depend on this callable have these settings."""
        self._calls[call] = settings

    def find(self, app: Any) -> list[FoundRoute]:
        """Return all routes of the application, in their order."""
        return [
            FoundRoute(route.path, methods, self._settings_of(getattr(route, "dependant", None)))
            for route in _iter_routes(app.routes)
            if (methods := (getattr(route, "methods", None) or set()) - SAFE_METHODS)
        ]

    def _settings_of(self, dependant: Any) -> RouteSettings | None:
        """Return the settings of the route's strictest dependency. None: it has no such dependency."""
        if dependant is None:
            return None
        inner = [self._settings_of(dependency) for dependency in dependant.dependencies]
        found = [one for one in (self._calls.get(dependant.call), *inner) if one is not None]
        return max(found, key=lambda one: one.required, default=None)

    def middleware(self, app: App, fastapi_app: Any) -> App:
        """Return the application behind one middleware for each group of routes with the same settings."""
        routes = self.find(fastapi_app)
        groups = {id(one.settings.choices): one.settings.choices for one in routes if one.settings is not None}
        for choices in groups.values():
            app = _RouteMiddleware(app, self._once, self._principal, choices, routes=routes, fastapi_app=fastapi_app)
        return app

    def document_responses(self, app: Any, responses: Mapping[int | str, Any]) -> None:
        """Add the middleware's own responses to the OpenAPI document of the application."""
        original = app.openapi

        def openapi() -> dict[str, Any]:
            from starlette.routing import compile_path

            document: dict[str, Any] = original()
            for path, methods, settings in self.find(app):
                operations = document.get("paths", {}).get(compile_path(path)[1], {}) if settings else {}
                for method in methods & {name.upper() for name in operations}:
                    documented = operations[method.lower()].setdefault("responses", {})
                    for status, response in responses.items():
                        documented.setdefault(str(status), response)
            return document

        app.openapi = openapi


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
        routes: Iterable[FoundRoute],
        fastapi_app: Any,
    ) -> None:
        self._own = [
            (path, methods, one.required if one is not None and one.choices is choices else None)
            for path, methods, one in routes
        ]
        if not isinstance(principal, load_fastapi().params.Depends):
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


def _iter_routes(routes: Any) -> Iterable[Any]:
    """Return all routes. Recent versions of FastAPI keep included routers nested, with a function to flatten them."""
    load_fastapi()
    from fastapi import routing

    each: Callable[[Any], Iterable[Any]] = getattr(routing, "iter_route_contexts", iter)
    return each(routes)


def load_fastapi() -> Any:
    """Return the package, or raise if it is not installed."""
    try:
        import fastapi
    except ImportError:
        raise MissingExtra("FastAPI is not installed", hint="pip install fastapi") from None
    return fastapi
