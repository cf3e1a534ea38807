"""With any headers and bodies: no 500, and never the answer of another request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import AsyncOnce
from onceward.http.asgi import IdempotencyMiddleware
from onceward.stores import MemoryStore
from tests.sites import AsgiSite, WsgiSite, reply_to

KEYS = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b'"a"', b'"b"', b'"a\\"b"', b"bare", b'"a";x=1', b'"a","b"', b"?1", b'"\xc3\xa9"', b""]),
)
HEADERS = st.lists(
    st.one_of(
        st.tuples(st.just(b"idempotency-key"), KEYS),
        st.tuples(st.sampled_from([b"content-type", b"content-length", b"expect", b"te"]), st.binary(max_size=30)),
        st.tuples(st.just(b"content-length"), st.integers(0, 10**30).map(lambda size: b"%d" % size)),
        st.tuples(st.just(b"authorization"), st.sampled_from([b"alice", b"bob", b"", b"\xff"])),
    ),
    max_size=5,
)
BODIES = st.lists(st.binary(max_size=20), min_size=1, max_size=3)
PATHS = st.sampled_from(["/pay", "/notes/1", "/orders/1/pay", "/other", "/pay\udcff", "/pay\x00", "/"])
METHODS = st.sampled_from(["POST", "PATCH", "GET", "HEAD", "DELETE", "BREW"])
REQUESTS = st.lists(st.tuples(METHODS, PATHS, st.binary(max_size=5), HEADERS, BODIES), min_size=1, max_size=4)
EXPECTED = {200, 400, 401, 413, 422}


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": repr((scope["method"], scope["path"], body)).encode()})


def user_of(scope: Any) -> str | None:
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    return found[0].decode("latin-1") if found else None


@given(REQUESTS, st.booleans())
def test_no_request_makes_a_500_and_no_answer_is_that_of_another_request(requests: list[Any], bare: bool) -> None:
    async def all_of_them() -> None:
        async with AsyncOnce(MemoryStore()) as once:
            app = IdempotencyMiddleware(
                echo, once, principal=user_of, required=["/pay"], optional=["/notes/*", "/orders/{id}/pay"],
                bare_keys=bare, max_body=40,
            )  # fmt: skip
            for method, path, query, headers, chunks in requests:
                scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": headers}
                messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
                messages[-1]["more_body"] = False
                reply = await reply_to(app, scope, messages)
                assert reply.status in EXPECTED, reply
                if reply.status == 200:
                    assert reply.body.startswith(repr((method, path))[:-1].encode()), "it is the answer to this request"

    asyncio.run(all_of_them())


LATIN = st.text(st.characters(max_codepoint=255), max_size=8)


@pytest.mark.parametrize("kind", [AsgiSite, WsgiSite])
def test_no_key_and_no_body_makes_a_500_sync_or_async(kind: type[AsgiSite | WsgiSite]) -> None:
    site = kind(max_body=40)

    @given(LATIN, st.binary(max_size=50), st.binary(max_size=5), st.sampled_from(["alice", "bob", None]))
    def ask(key: str, body: bytes, query: bytes, user: str | None) -> None:
        assert site.ask(key, body, query=query, user=user).status in EXPECTED | {201}

    try:
        ask()
    finally:
        site.close()
