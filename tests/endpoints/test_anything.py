"""Endpoints fed with anything: no body and no header makes a server error."""

from __future__ import annotations

import asyncio
import base64
import functools
import io
import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import Once
from onceward.http.push import AsyncCloudEventsPush, AsyncPubSubPush, CloudEventsPush, InboundRequest, PubSubPush
from onceward.http.signatures import Scheme, SignatureData
from onceward.http.webhooks import AsyncWebhook, Webhook, WebhookEvent, github, signed, slack, standard, stripe
from tests.endpoints.helpers import enveloped

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.text(st.characters(min_codepoint=0, max_codepoint=255), max_size=40)
DATA = st.binary(max_size=40) | st.just(b'{"order": 7}') | JSON.map(lambda value: json.dumps(value).encode())
PACKED = DATA.map(lambda data: base64.b64encode(data).decode()) | st.text(max_size=20) | JSON
INNER = st.fixed_dictionaries(
    {},
    optional={
        "messageId": st.text(max_size=8) | JSON,
        "message_id": st.text(max_size=8) | JSON,
        "data": PACKED,
        "attributes": st.dictionaries(st.text(max_size=4), st.text(max_size=4)) | JSON,
        "publishTime": TEXTS | JSON,
        "orderingKey": JSON,
    },
)
ENVELOPES = st.fixed_dictionaries({"message": INNER | JSON}, optional={"subscription": JSON, "deliveryAttempt": JSON})
BODIES = (
    st.binary(max_size=60)
    | JSON.map(lambda v: json.dumps(v).encode())
    | ENVELOPES.map(lambda v: json.dumps(v).encode())
)
NAMES = st.sampled_from(
    [
        *("content-type", "authorization", "stripe-signature", "x-hub-signature-256", "x-github-delivery"),
        *("x-slack-signature", "x-slack-request-timestamp", "webhook-id", "x-s", "x-t", "x-id"),
        *("ce-id", "ce-source", "ce-type", "ce-specversion", "ce-time"),
    ]
)
VALUES = TEXTS | st.sampled_from(
    ["application/json", "application/cloudevents+json", "application/x-www-form-urlencoded", "t=1,v1=a", "sha256=ab",
     "v0=ab", "1.0", "-1", "1" * 30, "v1,abc v1,def"]
)  # fmt: skip
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
METHODS = st.sampled_from(["POST", "POST", "POST", "GET", "PUT"])


def open_to_all(scheme: Scheme) -> Scheme:
    """Skip the signature check, so that the code behind it gets every body too."""

    def read_signature(request: InboundRequest) -> SignatureData:
        return SignatureData(
            [scheme.encode(scheme._mac(scheme.secrets[0], b"", request.body))], b"", str(int(time.time()))
        )

    return msgspec.structs.replace(scheme, read_signature=read_signature)


def status_of(endpoint: Any, environ: dict[str, Any]) -> str:
    statuses: list[str] = []
    b"".join(endpoint(environ, lambda status, headers: statuses.append(status)))
    return statuses[0]


def handled(message: Any) -> None:
    """Nothing."""


async def handled_async(message: Any) -> None:
    """Nothing."""


@functools.cache
def blocking_endpoints() -> list[Any]:
    """Create the endpoints once: each example runs on the records of the previous ones."""
    once = Once("memory://")
    pubsub = PubSubPush(once, "pubsub", check=None)
    cloud = CloudEventsPush(once, "cloud", check=None)
    for one in (pubsub, cloud):
        one.on({"order"})(handled)
    schemes = [
        stripe("s"),
        github("s"),
        slack("s"),
        signed("s", name="acme", header="x-s", event_id="x-id", timestamp="x-t"),
    ]
    schemes += [open_to_all(scheme) for scheme in schemes]
    return [pubsub, cloud, *(Webhook(once, scheme, handled) for scheme in schemes)]


def async_endpoints(once: Once) -> list[Any]:
    pubsub = AsyncPubSubPush(once.aio, "pubsub", check=None)
    cloud = AsyncCloudEventsPush(once.aio, "cloud", check=None)
    for one in (pubsub, cloud):
        one.on({"order"})(handled_async)
    return [pubsub, cloud, AsyncWebhook(once.aio, open_to_all(slack("s")), handled_async)]


@pytest.mark.fault("F15", "F16", "F17")
@given(METHODS, HEADERS, BODIES)
def test_no_body_and_no_header_makes_a_server_error_wsgi(
    method: str, headers: list[tuple[str, str]], body: bytes
) -> None:
    for endpoint in blocking_endpoints():
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
            "QUERY_STRING": "",
        }
        for name, value in headers:
            environ["CONTENT_TYPE" if name == "content-type" else f"HTTP_{name.upper().replace('-', '_')}"] = value
        assert int(status_of(endpoint, environ)[:3]) < 500


@given(METHODS, HEADERS, BODIES)
async def test_no_body_and_no_header_makes_a_server_error_asgi(
    method: str, headers: list[tuple[str, str]], body: bytes
) -> None:
    once = Once("memory://")
    try:
        for endpoint in async_endpoints(once):
            messages: list[Any] = []

            async def receive() -> Any:
                return {"type": "http.request", "body": body}

            async def send(message: Any, messages: list[Any] = messages) -> None:
                messages.append(message)

            raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
            await endpoint({"type": "http", "method": method, "path": "/", "headers": raw}, receive, send)
            assert messages[0]["status"] < 500, messages
            assert [one["type"] for one in messages] == ["http.response.start", "http.response.body"]
    finally:
        await asyncio.to_thread(once.close)


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "٣", "99999999999999999999999999"])
def test_an_invalid_content_length_is_refused(length: str) -> None:
    with Once("memory://") as once:
        environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": length, "wsgi.input": io.BytesIO(b"{}")}
        assert status_of(PubSubPush(once, "orders", check=None), environ)[:3] in {"400", "413"}


class Endless(io.RawIOBase):
    """A body without an end."""

    def read(self, size: int = -1) -> bytes:
        assert size >= 0, "read without a limit"
        self.total = getattr(self, "total", 0) + size
        assert self.total < 1_000_000, "far more than the limit was read"
        return b"x" * size


@pytest.mark.parametrize("length", ["0" * 20 + "99999999999", "0" * 5000 + "99999999999"])
def test_a_length_behind_zeros_gets_no_further_than_any_other(length: str) -> None:
    with Once("memory://") as once:
        environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": length, "wsgi.input": Endless()}
        endpoint = PubSubPush(once, "orders", check=None, limit=100_000)
        assert status_of(endpoint, environ)[:3] == "413"
        environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": "0" * 5000 + "2", "wsgi.input": io.BytesIO(b"{}")}
        assert status_of(endpoint, environ)[:3] == "400", "the body was read and is not an envelope"


SURROGATE = "t=\ud800,v1=\ud800,v0=\ud800"
"""Frameworks that decode headers as UTF-8 may hand on what was none."""


@pytest.mark.parametrize("name", ["stripe-signature", "x-hub-signature-256", "x-slack-signature", "webhook-id"])
@pytest.mark.parametrize("scheme", [stripe("s"), github("s"), slack("s"), standard("whsec_c2VjcmV0")])
def test_a_header_that_is_no_text_is_no_signature(scheme: Scheme, name: str) -> None:
    with Once("memory://") as once:
        endpoint = Webhook(once, scheme, lambda _event: None)
        assert endpoint.respond(InboundRequest("POST", {name: SURROGATE}, b"{}")).status == 403


def test_an_id_that_is_no_text_is_no_id() -> None:
    with Once("memory://") as once:
        endpoint = CloudEventsPush(once, "orders", check=None)
        headers = {"ce-id": "\ud800", "ce-source": "s", "ce-type": "t", "ce-specversion": "1.0"}
        assert endpoint.respond(InboundRequest("POST", headers, b"{}")).status == 400


def test_a_body_that_breaks_off_is_no_message() -> None:
    seen: list[Any] = []
    with Once("memory://") as once:
        endpoint = PubSubPush(once, "orders", check=None)
        endpoint.on()(seen.append)
        body = enveloped({"order": 7})
        environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": str(len(body) + 1), "wsgi.input": io.BytesIO(body)}
        assert status_of(endpoint, environ) == "400 Bad Request"
    assert seen == []


async def test_of_a_body_that_never_ends_no_more_is_kept_than_the_limit() -> None:
    once = Once("memory://")
    endpoint = AsyncPubSubPush(once.aio, "orders", check=None, limit=1_000)
    chunks: list[int] = []
    messages: list[Any] = []

    async def endless() -> Any:
        chunks.append(1)
        assert len(chunks) <= 11, "the endpoint keeps reading"
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    async def send(message: Any) -> None:
        messages.append(message)

    await endpoint({"type": "http", "method": "POST", "path": "/", "headers": []}, endless, send)
    assert messages[0]["status"] == 413
    await asyncio.to_thread(once.close)


async def test_a_client_that_disconnects_before_its_body_starts_nothing() -> None:
    once = Once("memory://")
    seen: list[WebhookEvent] = []

    async def handle(event: WebhookEvent) -> None:
        seen.append(event)

    async def gone() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    endpoint = AsyncWebhook(once.aio, github("s"), handle)
    await endpoint(
        {"type": "http", "method": "POST", "path": "/", "headers": [(b"x-hub-signature-256", b"sha256=0")]}, gone, send
    )
    assert seen == []
    await asyncio.to_thread(once.close)
