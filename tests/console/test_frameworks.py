"""The console in applications of other frameworks: WSGI, Flask and Django."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from onceward import AsyncOnce, Once
from onceward.console import Console
from onceward.console.wsgi import wsgi_app
from onceward.errors import ConfigurationError
from tests.console.shop import filled_shop


@pytest.fixture
def once() -> Iterator[Once]:
    with filled_shop("memory://") as shop:
        yield shop


def environ(method: str, path: str, root: str = "", body: bytes = b"", cookie: str = "") -> dict[str, Any]:
    return {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": root,
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "REMOTE_PORT": "50000",
        "HTTP_HOST": "127.0.0.1",
        "HTTP_ORIGIN": "http://127.0.0.1",
        "HTTP_COOKIE": cookie,
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": "application/x-www-form-urlencoded",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
    }


def called(app: Any, asked: dict[str, Any]) -> tuple[str, dict[str, str], bytes]:
    start: list[Any] = []
    body = b"".join(app(asked, lambda *given: start.extend(given[:2])))
    return start[0], {name.lower(): text for name, text in start[1]}, body


def test_a_wsgi_application_serves_it_below_a_prefix(once: Once) -> None:
    app = wsgi_app(Console(once, write=True))
    status, headers, body = called(app, environ("GET", "/keys", "/onceward"))
    assert status.startswith("200")
    assert b'href="/onceward/parked"' in body
    assert b"pay:ann" in body
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert called(app, environ("GET", "/static/console.css", "/onceward"))[0].startswith("200")
    token = headers["set-cookie"].partition("onceward_csrf=")[2].partition(";")[0]
    form = urlencode({"csrf": token, "action": "forget", "filter-scope": "shop/charge"}).encode()
    status, _, body = called(app, environ("POST", "/bulk/preview", "/onceward", form, f"onceward_csrf={token}"))
    assert status.startswith("200")
    assert b"Forget: preview" in body
    assert called(app, environ("POST", "/bulk/preview", "/onceward", form))[0].startswith("403")
    with pytest.raises(ConfigurationError, match="needs a Once"):
        wsgi_app(Console(AsyncOnce("memory://")))


MAY_ACT = ("onceward.resolve_record", "onceward.retry_record")


def test_the_permissions_of_the_console_are_those_of_the_django_app() -> None:
    models = (Path(__file__).parents[2] / "src/onceward/django/models.py").read_text(encoding="utf-8")
    for name in (*MAY_ACT, "onceward.forget_record"):
        assert f'("{name.removeprefix("onceward.")}", "Can ' in models


def test_django_serves_it_for_its_own_users(once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.conf import settings

    if not settings.configured:
        settings.configure(SECRET_KEY="only for tests")
    monkeypatch.setattr(settings, "ALLOWED_HOSTS", ["*"])  # another test may have configured Django already
    from django.test import RequestFactory

    from onceward.console.django import console_urls, staff_only

    [pattern] = console_urls(Console(once, authorize=staff_only, write=True))

    def user(*permissions: str, staff: bool = True) -> Any:
        return SimpleNamespace(
            is_active=True,
            is_staff=staff,
            has_perm=lambda name: name in permissions,
            has_perms=lambda names: set(names) <= set(permissions),
            get_username=lambda: "ann",
        )

    def ask(method: str, path: str, by: Any, form: dict[str, str] | None = None, cookie: str = "") -> Any:
        factory = RequestFactory(headers={"host": "shop.example", "origin": "http://shop.example", "cookie": cookie})
        full = f"/admin/onceward/{path}"
        request = (
            factory.get(full)
            if method == "GET"
            else factory.post(full, urlencode(form or {}), content_type="application/x-www-form-urlencoded")
        )
        request.user = by
        return pattern.callback(request, path.partition("?")[0])

    assert ask("GET", "keys", user(staff=False)).status_code == 403
    shown = ask("GET", "keys", user())
    assert shown.status_code == 200
    assert b'href="/admin/onceward/parked"' in shown.content
    assert shown.headers["Content-Type"].startswith("text/html")
    token = shown.cookies["onceward_csrf"].value
    assert shown.cookies["onceward_csrf"]["samesite"] == "strict"
    preview = {"csrf": token, "action": "retry", "filter-scope": "shop/charge"}
    assert ask("POST", "bulk/preview", user(), preview, f"onceward_csrf={token}").status_code == 403
    allowed = ask("POST", "bulk/preview", user(*MAY_ACT), preview, f"onceward_csrf={token}")
    assert allowed.status_code == 200
    encoded = allowed.content.decode().partition('name="preview" value="')[2].partition('"')[0]
    form = {"csrf": token, "preview": encoded, "why": "fixed"}
    done = ask("POST", "bulk/apply", user(*MAY_ACT), form, f"onceward_csrf={token}")
    assert (done.status_code, done.headers["Location"]) == (303, "/admin/onceward/keys")
    assert [entry.who for entry in once.audit()] == ["ann (console)"]
