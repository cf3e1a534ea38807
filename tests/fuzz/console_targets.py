"""The console, as a whole: every address and form that a browser can send gets an answer that is not a 500."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlencode

import msgspec

from onceward.administration import bulk
from onceward.administration.actions import Action
from onceward.administration.listing import encode_cursor
from onceward.console import Console
from onceward.protocol.record import RecordState
from tests.console.shop import filled_shop
from tests.fuzz.target import Target

TOKEN = b"t" * 43
HEADERS = [
    (b"host", b"127.0.0.1:8321"),
    (b"origin", b"http://127.0.0.1:8321"),
    (b"cookie", b"onceward_csrf=" + TOKEN),
    (b"content-type", b"application/x-www-form-urlencoded"),
    (b"x-csrf-token", TOKEN),
]


@cache
def shop() -> Console:
    return Console(filled_shop("sqlite://:memory:"), write=True)


FAILED = "def65de408fe45adaf9f873b95e00f9ec7e3017be0985c03750a251fdc756e7e"  # the id of charge:3


def cursor(*position: int) -> str:
    encoded = encode_cursor(msgspec.msgpack.encode(position))
    assert encoded is not None
    return encoded


CURSOR = cursor(2**50, 3)


async def answer(console: Console, method: str, target: bytes, body: bytes) -> int:
    path, _, query = target.partition(b"?")
    scope = {
        "type": "http", "http_version": "1.1", "scheme": "http", "method": method, "headers": HEADERS, "root_path": "",
        "path": "/" + unquote_to_bytes(path.lstrip(b"/")).decode("utf-8", "replace"), "raw_path": path,
        "query_string": query, "client": ("127.0.0.1", 50_000), "server": ("127.0.0.1", 8321),
    }  # fmt: skip
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await console(scope, receive, send)
    return statuses[0]


def status_of(method: str, target: bytes, body: bytes = b"") -> int:
    return asyncio.run(answer(shop(), method, target, body))  # the shop is filled before there is an event loop


def page(data: bytes) -> None:
    assert status_of("GET", data) < 500


def form(data: bytes) -> None:
    """Send what follows the first line as a form."""
    target, _, body = data.partition(b"\n")
    assert status_of("POST", target, b"csrf=" + TOKEN + b"&" + body) < 500


def pages() -> tuple[bytes, ...]:
    everything = {
        "state": "FAILED", "scope": "shop/charge", "tenant": "acme", "prefix": "charge:", "since": "2h", "limit": "5",
        "before": "2030-01-01T00:00", "after": CURSOR,
    }  # fmt: skip
    return (
        b"keys?" + urlencode(everything).encode(),
        b"keys/" + FAILED.encode(),
        b"failures/17?format=json",
        b"audit?within=2h&format=csv",
        f"parked?after={CURSOR}".encode(),
        f"sagas?state=FAILED&after={CURSOR}".encode(),
        b"states?scope=shop/trucks&show=values&after=AAAB",
        b"find?q=" + quote("charge:3").encode(),
        b"schedules/nightly",
    )


def forms() -> tuple[bytes, ...]:
    act = {
        "action": "resolve_applied", "state": "FAILED", "token": "7", "key": "charge:3", "why": "paid", "result": "[1]",
        "window": "2h", "back": "/keys",
    }  # fmt: skip
    target = bulk.Target(bytes.fromhex(FAILED), 7, RecordState.FAILED, "shop/charge", "charge:3")
    preview = bulk.Preview(Action(verb="retry"), [target], []).encode()
    apply = {"preview": preview, "why": "paid", "done": 1, "left_alone": 2, "reason": "a"}
    return (
        f"keys/{FAILED}/act\n{urlencode(act)}".encode(),
        f"bulk/preview\naction=retry&id={FAILED}&back=/keys".encode(),
        f"bulk/apply\n{urlencode(apply)}".encode(),
        b"schedules-action/run\nname=nightly&why=late",
        b"people/answer\none=1&other=2&answer=same&seen=2026-11-19T00:00:00+00:00 2026-11-19T00:00:00",
    )


CONSOLE_TARGETS: dict[str, Target] = {
    "console_page": Target(page, (), pages()),
    "console_form": Target(form, (), forms()),
}
