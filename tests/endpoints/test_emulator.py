"""Google's Pub/Sub emulator pushes to an endpoint under uvicorn."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import Once, RecordState
from onceward.http.push import AsyncPubSubPush, PushMessage
from tests.endpoints.helpers import asgi_served, wait_until
from tests.servers.pubsub_push import emulator


@pytest.mark.mission("E1", "E3")
def test_what_fails_is_pushed_again_until_it_succeeds_and_what_cannot_be_read_is_pushed_once() -> None:
    attempts: list[tuple[str, Any]] = []
    with Once("memory://") as once:
        endpoint = AsyncPubSubPush(once.aio, "orders", check=None)

        @endpoint.on({"order"}, attributes={"kind": "new"})
        async def handle(message: PushMessage[Any]) -> None:
            attempts.append((message.id, message.payload))
            assert message.published_at is not None
            assert message.source.endswith("/subscriptions/orders-push")
            if len(attempts) < 3:
                raise ConnectionError("not now")

        with emulator() as pubsub, asgi_served(endpoint) as url:
            pubsub.subscribe("orders", f"{url}/pubsub/push")
            poison = pubsub.publish("orders", b"not json", kind="new")
            strange = pubsub.publish("orders", b'{"weather": "rain"}', kind="new")
            good = pubsub.publish("orders", b'{"order": 7}', kind="new")

            def state_of(id: str) -> RecordState | None:
                entry = once.read(id, name="orders")
                return None if entry is None else entry.state

            wait_until(lambda: state_of(good) is RecordState.COMPLETED, "the message was handled")
            wait_until(lambda: state_of(poison) is RecordState.FAILED, "the poison is on record")
            wait_until(lambda: state_of(strange) is RecordState.FAILED, "the unknown shape is on record")
        assert attempts == [(good, {"order": 7})] * 3
        assert once.counts["rejected"] == 2, "each was pushed once"
