"""How an endpoint reads the body of a WSGI request: its length, its end, and its limit."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from onceward import Once
from onceward.http.push import PubSubPush
from tests.endpoints.helpers import enveloped


@pytest.fixture
def once() -> Iterator[Once]:
    with Once("memory://") as once:
        yield once


class Reply:
    """The reply of a WSGI application to a POST."""

    def __init__(self, app: Any, stream: Any, **environ: Any) -> None:
        given = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "wsgi.input": stream, **environ}
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b"".join(app(given, self._start))

    def _start(self, status: str, headers: list[tuple[str, str]]) -> None:
        self.status, self.headers = int(status[:3]), dict(headers)

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["code"])


class Unread:
    """A body that must not be read: the server does not mark its end, so reading would block."""

    def read(self, size: int = -1) -> bytes:
        raise AssertionError("the body was read")


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def push(once: Once, seen: list[Any]) -> PubSubPush:
    push = PubSubPush(once, "orders", check=None, limit=1000)

    @push.on()
    def handle(message: Any) -> None:
        seen.append(message.payload)

    return push


BODY = enveloped({"order": 7})


def test_a_body_with_a_length_is_read_up_to_it(push: PubSubPush, seen: list[Any]) -> None:
    """A server that keeps the connection open may leave the next request in the stream."""
    stream = io.BytesIO(BODY + b"POST /")
    reply = Reply(push, stream, CONTENT_LENGTH=f"00{len(BODY)}")
    assert (reply.status, reply.headers["Content-Length"]) == (200, str(len(reply.body)))
    assert seen == [{"order": 7}]
    assert stream.read() == b"POST /"


@pytest.mark.parametrize("length", ["abc", "-1", "1.5", " 1", "²"])
def test_a_length_that_is_no_number_is_refused(push: PubSubPush, length: str) -> None:
    reply = Reply(push, Unread(), CONTENT_LENGTH=length)
    assert (reply.status, reply.code) == (400, "bad_length")


def test_a_body_that_was_cut_off_is_not_handled(push: PubSubPush, seen: list[Any]) -> None:
    """What arrived may be a complete message by itself."""
    reply = Reply(push, io.BytesIO(BODY), CONTENT_LENGTH=str(len(BODY) + 1))
    assert (reply.status, reply.code) == (400, "incomplete")
    assert seen == []


def test_a_chunked_body_is_read_if_the_server_marks_its_end(push: PubSubPush, seen: list[Any]) -> None:
    assert Reply(push, io.BytesIO(BODY), **{"wsgi.input_terminated": True}).status == 200
    assert seen == [{"order": 7}]
    reply = Reply(push, io.BytesIO(bytes(1001)), **{"wsgi.input_terminated": True})
    assert (reply.status, reply.code) == (413, "too_large")


@pytest.mark.parametrize("environ", [{}, {"CONTENT_LENGTH": ""}])
def test_a_body_whose_end_is_unknown_is_not_read(push: PubSubPush, environ: dict[str, str]) -> None:
    assert Reply(push, Unread(), **environ).status == 400


def test_a_response_without_content_has_no_length(once: Once) -> None:
    push = PubSubPush(once, "orders", check=None)
    reply = Reply(push, io.BytesIO(BODY), CONTENT_LENGTH=str(len(BODY)))
    assert (reply.status, reply.body) == (204, b""), "no handler accepts it"
    assert "Content-Length" not in reply.headers
