"""Which senders may push, and which declarations of an endpoint are refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from onceward import ConfigurationError, Once, OncewardWarning
from onceward.http.push import (
    AsyncPubSubPush,
    InboundRequest,
    PubSubPush,
    PushMessage,
    Refusal,
    bearer_token,
    query_token,
)
from tests.clients import SyncClient
from tests.endpoints.helpers import enveloped, pubsub_of, push
from tests.endpoints.push_answers import APPLIED, counting

# ── which senders may push ──


def test_a_token_that_does_not_hold_never_touches_the_store(client: SyncClient) -> None:
    endpoint = pubsub_of(client, check=bearer_token("right", "rotated"))
    seen = counting(endpoint)
    with client.store_trouble("claim") as asked:
        for given in ("", "Bearer wrong", "Bearer right2", "Basic right", "Bearer rigth", "right", "Bearer é"):
            answer = endpoint.send(push({"order": 7}, headers={"authorization": given} if given else {}))
            assert (answer.status, dict(answer.headers)["www-authenticate"]) == (401, "Bearer")
    assert (asked, seen) == ([], [])
    assert endpoint.post(push({"order": 7}, headers={"Authorization": "Bearer rotated"})) == APPLIED
    assert client.once.counts["rejected"] == 7


def test_a_token_may_be_in_the_url(client: SyncClient) -> None:
    endpoint = pubsub_of(client, check=query_token("right"))
    counting(endpoint)
    body = enveloped({"order": 7})
    for query, status in (("", 401), ("token=wrong", 401), ("token=right&token=wrong", 401), ("token=right", 200)):
        assert endpoint.send(InboundRequest("POST", {}, body, query=query)).status == status


def test_a_check_that_raises_admits_no_request(client: SyncClient) -> None:
    raised: list[Exception] = []

    def check(request: InboundRequest) -> bool:
        raise raised[-1]

    endpoint = pubsub_of(client, check=check)
    seen = counting(endpoint)
    for error, status in ((ValueError("expired"), 401), (PermissionError(), 401), (TimeoutError("no network"), 503)):
        raised.append(error)
        with client.store_trouble("claim") as asked:
            assert endpoint.send(push({"order": 7})).status == status
        assert (asked, seen) == ([], [])


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


def test_a_check_admits_a_request_only_with_true(client: SyncClient) -> None:
    returned: list[object] = []
    endpoint = pubsub_of(client, check=lambda _: returned[-1])
    counting(endpoint)
    for value, status in (
        ({"sub": "ann"}, 503),
        ("no", 503),
        (1, 503),
        (Undecided(), 503),
        (None, 401),
        (Refusal("blocked"), 401),
    ):
        returned.append(value)
        assert endpoint.send(push({"order": 7})).status == status
    rejected = [(event.reason, event.error) for event in client.events if event.name == "rejected"]
    assert rejected[0] == ("check_failed", "it returned dict, not True, False or a Refusal")
    assert rejected[-1] == ("blocked", "")
    returned.append(True)
    assert endpoint.post(push({"order": 7})) == APPLIED


async def test_an_async_check_is_awaited() -> None:
    async def check(request: InboundRequest) -> bool:
        return request.header("x-ok") == "yes"

    with Once("memory://") as once:
        endpoint = AsyncPubSubPush(once.aio, "orders", check=check)

        @endpoint.on({"order"})
        async def handle(message: PushMessage[Any]) -> None:
            """Nothing."""

        assert (await endpoint.respond(push({"order": 7}, headers={"x-ok": "no"}))).status == 401
        assert (await endpoint.respond(push({"order": 7}, headers={"x-ok": "yes"}))).status == 200


class Suspicious:
    """An async check that does not look like one."""

    async def __call__(self, request: InboundRequest) -> bool:
        return False


def test_a_check_that_returns_an_awaitable_does_not_admit_requests_by_accident(client: SyncClient) -> None:
    """A coroutine is truthy, whatever it would return."""
    endpoint = pubsub_of(client, check=Suspicious())
    seen = counting(endpoint)
    assert endpoint.send(push({"order": 7})).status == (401 if client.mode == "async" else 503)
    assert seen == []


# ── what cannot work is refused when it is declared ──


def test_sync_async_mixes_and_shapes_that_cannot_work_are_refused() -> None:
    async def coroutine(message: PushMessage[Any]) -> None: ...

    def plain(message: PushMessage[Any]) -> None: ...

    def yielding(message: PushMessage[Any]) -> Iterator[bytes]:
        yield b"acknowledged, and nothing of it was ever run"

    async def yielding_async(message: PushMessage[Any]) -> AsyncIterator[bytes]:
        yield b"the same"

    async def check(request: InboundRequest) -> bool:
        return True

    anything: Any = PubSubPush
    with Once("memory://") as once:
        endpoint = PubSubPush(once, "orders", check=None)
        with pytest.raises(ConfigurationError, match="is async"):
            endpoint.on()(coroutine)
        with pytest.raises(ConfigurationError, match="block the event loop"):
            AsyncPubSubPush(once.aio, "orders", check=None).on()(plain)
        with pytest.raises(ConfigurationError, match="AsyncPubSubPush"):
            PubSubPush(once.aio, "orders", check=None)
        with pytest.raises(ConfigurationError, match=r"once\.aio"):
            AsyncPubSubPush(once, "orders", check=None)
        with pytest.raises(ConfigurationError, match="cannot await"):
            PubSubPush(once, "orders", check=check)
        with pytest.raises(TypeError, match="check"):
            anything(once, "orders")
        unfit: list[Any] = ["service", 7, set(), {7}, object, dict, int]
        for shape in unfit:
            with pytest.raises(ConfigurationError, match="shape"):
                endpoint.on(shape)
        with pytest.raises(ConfigurationError, match=r"on\(lease=…\) has no effect"):
            endpoint.on(claim=False, lease="1s")
        with pytest.raises(ConfigurationError, match="generator function"):
            endpoint.on()(yielding)
        with pytest.raises(ConfigurationError, match="generator function"):
            AsyncPubSubPush(once.aio, "orders", check=None).on()(yielding_async)
        endpoint.on()(plain)
        with pytest.raises(ConfigurationError, match="accepts every message"):
            endpoint.on({"order"})


@pytest.mark.fault("F47")
def test_a_window_shorter_than_the_broker_tries_is_warned_about() -> None:
    with Once("memory://") as once, pytest.warns(OncewardWarning, match="retry span"):
        PubSubPush(once, "orders", check=None, window="1h")
    with Once("memory://", window="30d") as once:
        policy = PubSubPush(once, "orders", check=None)._rejections.client.policy
        assert (policy.window.length, policy.on_running) == (30 * 86_400_000_000, "raise")


def test_reasons_of_the_client_override_those_of_the_endpoint() -> None:
    with Once("memory://", reasons={"executed": "new", "done": "seen"}) as once:
        endpoint = PubSubPush(once, "orders", check=None)
        endpoint.on()(lambda message: None)
        assert [json.loads(endpoint.respond(push({})).body)["reason"] for _ in range(2)] == ["new", "seen"]
