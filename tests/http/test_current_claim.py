"""`current_claim()` works in every handler: plain and async, of each framework, under ASGI and WSGI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onceward import AsyncOnce, Once, current_async_claim, current_claim
from onceward.errors import WrongRuntime
from onceward.http import asgi, wsgi
from tests.http.web_calls import WebClient

SETTINGS: dict[str, Any] = {"principal": lambda _: "alice", "required": ["/pay"]}


def plain() -> str:
    """Use the claim as a plain handler does: it may also write."""
    claim = current_claim()
    claim.check()
    claim.annotate(page="3")
    return f"{claim.key} {claim.attempt} {claim.note['page']} {claim.derived_key('charge')}"


async def awaited() -> str:
    """Use the claim as an async handler does."""
    claim = current_claim()
    claim.check()
    await current_async_claim().annotate(page="3")
    return f"{claim.key} {claim.attempt} {claim.note['page']} {claim.derived_key('charge')}"


def fastapi_app(work: Callable[[], Any]) -> Any:
    from fastapi import FastAPI
    from fastapi.responses import PlainTextResponse

    app = FastAPI(default_response_class=PlainTextResponse)
    app.add_api_route("/pay", work, methods=["POST"])
    return app


def starlette_app(work: Callable[[], Any]) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    def endpoint(_: Request) -> PlainTextResponse:
        return PlainTextResponse(work())

    async def async_endpoint(_: Request) -> PlainTextResponse:
        return PlainTextResponse(await work())

    chosen: Any = async_endpoint if asyncio.iscoroutinefunction(work) else endpoint
    return Starlette(routes=[Route("/pay", chosen, methods=["POST"])])


def litestar_app(work: Callable[[], Any]) -> Any:
    from litestar import Litestar, MediaType, post

    options: dict[str, Any] = {} if asyncio.iscoroutinefunction(work) else {"sync_to_thread": True}
    return Litestar([post("/pay", media_type=MediaType.TEXT, **options)(work)])


def flask_app(work: Callable[[], Any]) -> Any:
    from flask import Flask

    app = Flask(__name__)
    app.add_url_rule("/pay", view_func=work, methods=["POST"])
    return app


def django_app(work: Callable[[], Any]) -> Any:
    global urlpatterns  # noqa: PLW0603 (Django finds the routes of a module by this name)
    from django.core.handlers.asgi import ASGIHandler
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpRequest, HttpResponse
    from django.urls import clear_url_caches, path

    def endpoint(_: HttpRequest) -> HttpResponse:
        return HttpResponse(work())

    async def async_endpoint(_: HttpRequest) -> HttpResponse:
        return HttpResponse(await work())

    urlpatterns = [path("pay", async_endpoint if asyncio.iscoroutinefunction(work) else endpoint)]
    clear_url_caches()
    return {"asgi": ASGIHandler, "wsgi": WSGIHandler}


urlpatterns: list[Any] = []

CASES: dict[str, tuple[Callable[[Callable[[], Any]], Any], bool]] = {
    "fastapi": (fastapi_app, True),
    "starlette": (starlette_app, True),
    "litestar": (litestar_app, True),
    "flask": (flask_app, False),
    "django asgi": (django_app, True),
    "django wsgi": (django_app, False),
}


@pytest.fixture
def _django_settings() -> Iterator[None]:
    import django
    from django.conf import settings
    from django.test import override_settings

    if not settings.configured:
        settings.configure()
        django.setup()
    with override_settings(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], MIDDLEWARE=[]):
        yield


@pytest.mark.finding("N6")
@pytest.mark.usefixtures("_django_settings")
@pytest.mark.parametrize("work", [plain, awaited])
@pytest.mark.parametrize("framework", CASES)
def test_the_claim_of_the_request_is_found_in_every_handler(framework: str, work: Callable[[], Any]) -> None:
    build, is_asgi = CASES[framework]
    app = build(work)
    if isinstance(app, dict):
        app = app["asgi" if is_asgi else "wsgi"]()
    once = Once("memory://")
    guarded: Any = (
        asgi.IdempotencyMiddleware(app, once, **SETTINGS)
        if is_asgi
        else wsgi.IdempotencyMiddleware(app, once, **SETTINGS)
    )
    client = WebClient(guarded, is_asgi=is_asgi)
    try:
        first, second = client.post("/pay"), client.post("/pay")
    finally:
        client.close()
        once.close()
    assert first.text.startswith("k1 1 3 ow_"), first.text
    assert second.text == first.text


@pytest.mark.finding("N6")
def test_a_write_that_would_block_the_event_loop_names_the_function_to_await() -> None:
    async def blocks() -> str:
        with pytest.raises(WrongRuntime, match="current_async_claim"):
            current_claim().annotate(page="3")
        return "refused"

    once = AsyncOnce("memory://")
    client = WebClient(asgi.IdempotencyMiddleware(fastapi_app(blocks), once, **SETTINGS))
    try:
        assert client.post("/pay").text == "refused"
    finally:
        client.close()
