"""The example of each framework: one payment, however often it is requested, through the framework's own entry."""

from __future__ import annotations

import asyncio
import importlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.sites import Headers, Reply, reply_to

ALICE = "Bearer alice-token"
BODY = b'{"cents": 500}'
Ask = Callable[..., Reply]


def sent(key: str | None, token: str, body: bytes) -> Headers:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), (b"host", b"localhost")]
    headers.append((b"authorization", token.encode()))
    if key is not None:
        headers.append((b"idempotency-key", key.encode()))
    return headers


class Awaited:
    """An ASGI application on its own event loop."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._runner = asyncio.Runner()

    def __call__(
        self,
        key: str | None = '"k1"',
        body: bytes = BODY,
        path: str = "/payments",
        token: str = ALICE,
    ) -> Reply:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": sent(key, token, body),
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        return self._runner.run(
            reply_to(self._app, scope, [{"type": "http.request", "body": body, "more_body": False}])
        )

    def close(self) -> None:
        self._runner.close()


class Blocking:
    """A WSGI application."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(
        self,
        key: str | None = '"k1"',
        body: bytes = BODY,
        path: str = "/payments",
        token: str = ALICE,
    ) -> Reply:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": io.StringIO(),
            "wsgi.url_scheme": "http",
        }
        for name, value in sent(key, token, body):
            shown = name.decode().upper().replace("-", "_")
            environ[shown if shown.startswith("CONTENT") else f"HTTP_{shown}"] = value.decode()
        head: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            head[:] = [int(status[:3]), [(name.lower().encode(), value.encode()) for name, value in headers]]
            return None

        answer = self._app(environ, start_response)
        try:
            return Reply(head[0], head[1], b"".join(answer))
        finally:
            if hasattr(answer, "close"):
                answer.close()

    def close(self) -> None:
        """Nothing to close."""


CASES: dict[str, tuple[str, str, type[Awaited | Blocking]]] = {
    "starlette": ("starlette_app", "app", Awaited),
    "fastapi": ("fastapi_app", "app", Awaited),
    "litestar": ("litestar_app", "app", Awaited),
    "django asgi": ("django_app", "asgi", Awaited),
    "django wsgi": ("django_app", "wsgi", Blocking),
    "flask": ("flask_app", "app", Blocking),
}


@pytest.fixture
def django_settings() -> Iterator[None]:
    from django.conf import settings
    from django.test import override_settings

    if not settings.configured:
        settings.configure()
    with override_settings(ROOT_URLCONF="examples.http.django_app", ALLOWED_HOSTS=["*"]):
        yield


@pytest.mark.mission("B6")
@pytest.mark.parametrize("case", CASES)
def test_a_payment_is_made_once_however_often_it_is_asked_for(case: str, request: pytest.FixtureRequest) -> None:
    module, name, kind = CASES[case]
    if module == "django_app":  # other tests of this process may have configured Django differently
        request.getfixturevalue("django_settings")
    example = importlib.import_module(f"examples.http.{module}")
    ask = kind(getattr(example, name))
    key = f'"{case}"'
    before = len(example.payments)
    try:
        first, second = ask(key), ask(key)
        assert first.status == second.status == 201, first
        assert first.body == second.body
        assert (first.replayed, second.replayed) == (False, True)
        assert second.header("content-type") == first.header("content-type")
        assert ask(key, token="Bearer bob-token").replayed is False
        assert ask(key, body=b'{"cents": 501}').status == 422
        assert ask(None).status == 400
        assert ask(key, token="Bearer unknown").status == 401
    finally:
        ask.close()
    assert example.payments[before:] == [500, 500], "one of alice, one of bob"


@pytest.mark.rival(30)
@pytest.mark.parametrize("path", ["/payments", "//payments", "/payments/", "/payments//", "/payments\n", ""])
@pytest.mark.parametrize("case", CASES)
def test_no_way_to_write_the_path_leads_past_the_key(case: str, path: str, request: pytest.FixtureRequest) -> None:
    if case.startswith("django"):
        request.getfixturevalue("django_settings")
    module, name, kind = CASES[case]
    example = importlib.import_module(f"examples.http.{module}")
    ask = kind(getattr(example, name))
    before = len(example.payments)
    try:
        assert ask(None, path=path).status >= 300
    finally:
        ask.close()
    assert len(example.payments) == before


def test_the_openapi_document_of_fastapi_shows_the_key_its_window_and_the_problems() -> None:
    from examples.http.fastapi_app import app

    paths = app.openapi()["paths"]
    shown = paths["/payments"]["post"]
    (key,) = shown["parameters"]
    assert (key["name"], key["in"], key["required"]) == ("Idempotency-Key", "header", True)
    assert "lasting 1d" in key["description"]
    assert {"400", "401", "409", "410", "413", "422"} <= set(shown["responses"])
    assert "application/problem+json" in shown["responses"]["409"]["content"]
    (optional,) = paths["/notes"]["post"]["parameters"]
    assert optional["required"] is False


def test_an_optional_key_of_fastapi_counts_if_there_is_one() -> None:
    from examples.http.fastapi_app import app, payments

    ask = Awaited(app)
    before = len(payments)
    try:
        assert [ask(None, path="/notes").status for _ in range(2)] == [200, 200]
        assert [ask('"n"', path="/notes").replayed for _ in range(2)] == [False, True]
    finally:
        ask.close()
    assert len(payments) - before == 3


@pytest.mark.rival(30)
def test_a_route_of_fastapi_that_wants_keys_and_is_not_guarded_is_an_error_and_never_runs() -> None:
    from fastapi import FastAPI

    from onceward import AsyncOnce, ConfigurationError
    from onceward.http.fastapi import Idempotency

    runs: list[int] = []
    app = FastAPI()
    idempotency = Idempotency(AsyncOnce("memory://"), principal=lambda scope: "alice")

    @app.post("/payments", dependencies=[idempotency.required])
    async def pay() -> None:
        runs.append(1)

    ask = Awaited(app)
    try:
        with pytest.raises(ConfigurationError, match="no middleware protects it"):
            ask()
    finally:
        ask.close()
    assert runs == []


@pytest.mark.mission("B6")
@pytest.mark.parametrize("deep", [False, True])
def test_routes_of_included_routers_of_fastapi_are_guarded_as_any_other(deep: bool) -> None:
    from fastapi import APIRouter, FastAPI

    from onceward import AsyncOnce
    from onceward.http.fastapi import Idempotency

    runs: list[int] = []
    app, shop, router = FastAPI(), APIRouter(prefix="/shop"), APIRouter(prefix="/payments")
    idempotency = Idempotency(AsyncOnce("memory://"), principal=lambda scope: "alice")
    idempotency.protect(app)

    @router.post("/{kind}", dependencies=[idempotency.required])
    async def pay(kind: str) -> int:
        runs.append(1)
        return len(runs)

    if deep:
        shop.include_router(router)
    app.include_router(shop if deep else router)
    path = "/shop/payments/card" if deep else "/payments/card"
    ask = Awaited(app)
    try:
        assert ask(None, path=path).status == 400
        assert [ask(path=path).body for _ in range(2)] == [b"1", b"1"]
    finally:
        ask.close()


def test_the_first_route_of_fastapi_that_matches_says_whether_a_key_is_wanted() -> None:
    from fastapi import FastAPI

    from onceward import AsyncOnce
    from onceward.http.fastapi import Idempotency

    app = FastAPI()
    idempotency = Idempotency(AsyncOnce("memory://"), principal=lambda scope: "alice")
    idempotency.protect(app)
    free: dict[str, Any] = {}
    keyed: dict[str, Any] = {"dependencies": [idempotency.required]}
    routes = [
        ("/orders/mine", free, {"/orders/mine": 200}),
        ("/orders/{number:int}", free, {"/orders/7": 200}),
        ("/orders/{name}", keyed, {"/orders/book": 400, "/orders/8x": 400, "/orders/book\n": 400}),
        ("/orders/late", free, {"/orders/late": 400}),
        ("/pay", keyed, {"/pay": 400, "/pay\n": 400}),
        ("/files/{rest:path}", keyed, {"/files/": 400, "/files/a/b": 400}),
    ]
    for path, choices, _ in routes:
        app.add_api_route(path, lambda: "ok", methods=["POST"], **choices)
    ask = Awaited(app)
    try:
        for _, _, expected in routes:
            assert {path: ask(None, path=path).status for path in expected} == expected
    finally:
        ask.close()


@pytest.mark.parametrize("order", ["outside", "inside", "both"])
def test_streaming_middlewares_and_background_tasks_work_with_the_guard(order: str) -> None:
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from onceward import AsyncOnce
    from onceward.http.asgi import IdempotencyMiddleware

    async def passing(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    async def pay(request: Request) -> JSONResponse:
        payments.append((await request.json())["cents"])
        return JSONResponse({"payment": len(payments)}, 201, background=BackgroundTask(behind.append, len(payments)))

    payments: list[int] = []
    behind: list[int] = []
    once = AsyncOnce("memory://")
    stack = [Middleware(IdempotencyMiddleware, once, principal=lambda scope: "alice", required=["/payments"])]
    if order != "inside":
        stack.insert(0, Middleware(BaseHTTPMiddleware, dispatch=passing))
    if order != "outside":
        stack.append(Middleware(BaseHTTPMiddleware, dispatch=passing))
    ask = Awaited(Starlette(routes=[Route("/payments", pay, methods=["POST"])], middleware=stack))
    try:
        first, second = ask(), ask()
    finally:
        ask.close()
    assert (first.status, first.body, second.body) == (201, b'{"payment":1}', b'{"payment":1}')
    assert second.replayed
    assert (payments, behind) == ([500], [1])
