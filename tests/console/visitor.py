"""A visitor of the console without a browser: sends requests to the ASGI application, with cookies and forms."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

import httpx

from onceward.console.app import Console

ORIGIN = "http://127.0.0.1:8321"
LOOPBACK = ("127.0.0.1", 50_000)
_CSRF = re.compile(r'name="csrf" value="([^"]+)"')


class Visitor:
    """Sends requests as a browser on this machine would, unless told otherwise."""

    def __init__(
        self,
        console: Any,
        *,
        client: tuple[str, int] = LOOPBACK,
        origin: str = ORIGIN,
        root: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._app = console
        self.console = console
        self._client = client
        self._root = root
        self._headers = dict(headers or {})
        self.origin = origin
        self.cookies: dict[str, str] = {}

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self._send("GET", path, headers=headers)

    def post(self, path: str, form: Mapping[str, Any], *, csrf: str | None = None, **headers: str) -> httpx.Response:
        """Send a form with the right token and origin; `csrf` and headers replace them."""
        token = self.cookies.get("onceward_csrf", "") if csrf is None else csrf
        body = urlencode({**form, "csrf": token}, doseq=True).encode()
        sent = {"origin": self.origin, "content-type": "application/x-www-form-urlencoded", **headers}
        return self._send("POST", path, content=body, headers={name: text for name, text in sent.items() if text})

    def json(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def _send(
        self, method: str, path: str, *, headers: Mapping[str, str], content: bytes | None = None
    ) -> httpx.Response:
        return asyncio.run(self._sent(method, path, dict(headers), content))

    async def _sent(self, method: str, path: str, headers: dict[str, str], content: bytes | None) -> httpx.Response:
        transport = httpx.ASGITransport(self._app, client=self._client, root_path=self._root)
        given = {name.replace("_", "-"): text for name, text in {**self._headers, **headers}.items()}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        async with httpx.AsyncClient(transport=transport, base_url=self.origin) as http:
            answer = await http.request(method, path, headers=given, content=content)
        for line in answer.headers.get_list("set-cookie"):
            for name, cookie in SimpleCookie(line).items():
                self.cookies.pop(name, None)
                if cookie["max-age"] != "0":
                    self.cookies[name] = cookie.value
        return answer


def console_of(once: Any, **options: Any) -> Console:
    """Return a console that allows changes."""
    return Console(once, **{"write": True, **options})


def csrf_in(page: str) -> str:
    found = _CSRF.search(page)
    assert found is not None, "the page has no form"
    return found[1]
