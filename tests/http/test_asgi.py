"""Only in ASGI: messages that the middleware ignores, mounted paths, and what remains of a request."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from tests.http.asgi_calls import Counting, ask, guarded, scope_of
from tests.sites import JSON

# ── requests that the middleware ignores ──


@pytest.mark.fault("F77")
@pytest.mark.rival(15)
@pytest.mark.parametrize(
    "scope",
    [
        scope_of(method="GET"),
        scope_of(method="HEAD"),
        scope_of(None),
        scope_of(path="/other"),
        {"type": "websocket", "path": "/pay", "headers": [(b"idempotency-key", b'"k"')]},
        {"type": "lifespan"},
    ],
    ids=["get", "head", "no key", "other route", "websocket", "lifespan"],
)
async def test_unguarded_requests_get_the_very_objects_of_the_server(scope: dict[str, Any]) -> None:
    got: list[Any] = []

    async def app(*given: Any) -> None:
        got.extend(given)

    before = dict(scope)
    receive, send = object(), object()
    async with guarded(app) as middleware:
        await middleware(scope, receive, send)  # type: ignore[arg-type]  # they are never called
    assert [one is other for one, other in zip(got, (scope, receive, send), strict=True)] == [True] * 3
    assert scope == before


async def test_paths_are_compared_without_the_root_path_of_the_application() -> None:
    app = Counting()
    async with guarded(app) as middleware:
        mounted = scope_of(path="/api/pay", root_path="/api")
        assert [(await ask(middleware, dict(mounted))).body for _ in range(2)] == [b"1", b"1"]


@pytest.mark.rival(30)
async def test_a_root_path_that_only_begins_like_the_path_does_not_hide_a_route_that_wants_keys() -> None:
    app = Counting()
    async with guarded(app, required=["/payments"], optional=[]) as middleware:
        assert (await ask(middleware, scope_of(None, path="/payments", root_path="/pay"))).status == 400
        assert (await ask(middleware, scope_of(None, path="/pay/payments", root_path="/pay"))).status == 400
    assert app.runs == 0


async def test_a_principal_may_be_found_by_a_coroutine() -> None:
    async def principal(scope: Any) -> str:
        await asyncio.sleep(0)
        return "alice"

    app = Counting()
    async with guarded(app, principal=principal) as middleware:
        assert [(await ask(middleware)).body for _ in range(2)] == [b"1", b"1"]


# ── what remains of a request ──


@pytest.mark.parametrize("status", [200, 503])
async def test_nothing_of_a_request_waits_for_the_garbage_collector(status: int) -> None:
    exchanges: list[weakref.ref[Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        exchanges.append(weakref.ref(receive.__self__))
        await send({"type": "http.response.start", "status": status, "headers": [JSON]})
        await send({"type": "http.response.body", "body": b"large"})

    async with guarded(app) as middleware:
        gc.collect()
        gc.disable()
        try:
            for number in range(3):
                await ask(middleware, scope_of(f'"k{number}"'))
            await asyncio.sleep(0)
            assert [exchange() for exchange in exchanges] == [None] * 3
        finally:
            gc.enable()
