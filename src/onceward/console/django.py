"""Mount the console in Django, under WSGI and ASGI: `path("onceward/", include(console_urls(console)))`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.http.request import HttpHeaders
from django.urls import re_path
from django.views.decorators.csrf import csrf_exempt
from starlette.requests import Request
from starlette.types import Message

from .access import Access, LevelName
from .app import Console

__all__ = ["console_urls", "staff_only"]

REQUEST = "django.request"
"""The name of Django's request in the ASGI scope, for `authorize`."""


def console_urls(console: Console) -> list[Any]:
    """Return the URL patterns of a `console`, for `include`.

    The console checks its forms itself, so Django's CSRF check is not needed.
    """

    def view(request: HttpRequest, path: str) -> HttpResponse:
        return answer(console, request, path)

    return [re_path(r"^(?P<path>.*)$", csrf_exempt(view), name="onceward-console")]


def staff_only(request: Request) -> Access | None:
    """Return the access of Django's user: staff may read. Pass this function as `authorize`.

    Actions need the permissions of the app `onceward.django`. `onceward.resolve_record` and `onceward.retry_record`
    together allow "act", and `onceward.forget_record` in addition "admin". Superusers have all of them. A `request`
    without a staff user gets None: no access.
    """
    django_request = request.scope.get(REQUEST)
    user = getattr(django_request, "user", None)
    if user is None or not user.is_active or not user.is_staff:
        return None
    level: LevelName = "read"
    if user.has_perms(("onceward.resolve_record", "onceward.retry_record")):
        level = "admin" if user.has_perm("onceward.forget_record") else "act"
    return Access(level, user=user.get_username())


def answer(console: Console, request: HttpRequest, path: str) -> HttpResponse:
    """Answer one request of Django."""
    full = request.path
    root = full[: len(full) - len(path)].rstrip("/") if path else full.rstrip("/")
    headers: Mapping[str, str] = HttpHeaders(request.META)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": full,
        "raw_path": full.encode(),
        "root_path": root,
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
        "headers": [(name.lower().encode("latin-1"), text.encode("latin-1")) for name, text in headers.items()],
        "client": (request.META.get("REMOTE_ADDR", ""), 0),
        "server": (request.get_host().partition(":")[0], int(request.get_port())),
        REQUEST: request,
    }
    return async_to_sync(_call)(console, scope, request.body)


async def _call(console: Console, scope: dict[str, Any], body: bytes) -> HttpResponse:
    start: Message = {}
    parts: list[bytes] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        else:
            parts.append(message.get("body", b""))

    await console(scope, receive, send)
    response = HttpResponse(b"".join(parts), status=start["status"])
    del response.headers["Content-Type"]
    for name, text in start["headers"]:
        if name == b"set-cookie":
            response.cookies.load(text.decode("latin-1"))
        else:
            response.headers[name.decode("latin-1")] = text.decode("latin-1")
    return response
