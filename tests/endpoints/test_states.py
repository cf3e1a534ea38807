"""Pushes into latest states. The whole fifth seed, over real HTTP, is in tests/fleet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward import InvalidKey, Outcome, RecordState
from onceward.http.push import PushMessage
from onceward.latest import Ordering
from tests.clients import SyncClient
from tests.endpoints.helpers import pubsub_of, push

BEAT = {"service": "billing", "env": "prod", "status": "ok"}


def beat(second: int, id: str, **payload: Any) -> Any:
    return push({**BEAT, "producedAt": f"2025-03-01T08:00:{second:02}Z", **payload}, id)


def place(message: PushMessage[Any]) -> Ordering:
    return Ordering(message.payload["producedAt"], message.payload.get("sequence"), message.published_at, message.id)


@pytest.mark.mission("E1", "E2", "E3", "E4")
def test_the_answers_with_both_tiers_of_dedupe(client: SyncClient) -> None:
    endpoint = pubsub_of(client, "ops_dedupe")
    services = client.once.state("ops_services")

    @endpoint.on({"service", "status"}, claim=False)
    def heartbeat(message: PushMessage[Any]) -> Outcome[Any]:
        call = services.apply(
            message.payload["service"],
            place(message),
            message.payload["status"],
            event_id=message.payload["producedAt"],
        )
        outcome: Outcome[Any] = client.wait(call)
        return outcome

    def post_event(request: Any) -> tuple[int, bool, str]:
        status, body = endpoint.post(request)
        return status, body["applied"], body["reason"]

    assert post_event(beat(5, "m5")) == (200, True, "applied")
    assert post_event(beat(5, "m5")) == (200, False, "duplicate_message_noop")
    assert post_event(beat(4, "m4")) == (200, False, "stale_event_ignored")
    assert post_event(beat(4, "m4")) == (200, False, "duplicate_message_noop")
    assert post_event(beat(5, "m6")) == (200, False, "duplicate_event_noop")
    assert post_event(beat(5, "m5", status="down")) == (200, False, "mismatch")
    assert client.wait(services.get("billing")) == "ok"
    assert (client.once.counts["applied"], client.once.counts["stale"], client.once.counts["skipped"]) == (1, 1, 3)


@pytest.mark.mission("E1")
def test_an_event_that_can_never_be_applied_is_recorded_and_one_of_the_future_is_not_acknowledged(
    client: SyncClient,
) -> None:
    endpoint = pubsub_of(client, "ops_dedupe")
    services = client.once.state("ops_services")

    @endpoint.on({"service", "status"}, claim=False, final=InvalidKey)
    def heartbeat(message: PushMessage[Any]) -> Outcome[Any]:
        outcome: Outcome[Any] = client.wait(services.apply("billing", place(message), message.payload["status"]))
        return outcome

    bad = push({**BEAT, "producedAt": "yesterday"}, "m1")
    assert [endpoint.send(bad).status for _ in range(2)] == [204, 204]
    record = client.read("m1", name="ops_dedupe")
    assert (record.state, record.record.final) == (RecordState.FAILED, True)
    assert record.error.startswith("Rejected: unusable_data")
    future = endpoint.send(push({**BEAT, "producedAt": "2999-01-01T00:00:00Z"}, "m2"))
    assert (future.status, json.loads(future.body)["code"]) == (503, "future_event_parked")
    with client.store_trouble("apply_events"):
        assert endpoint.send(beat(5, "m5")).status == 503
    assert endpoint.post(beat(5, "m5"))[0] == 200


def test_a_handler_without_a_claim_fails_and_then_succeeds(client: SyncClient) -> None:
    endpoint = pubsub_of(client, "ops_dedupe")
    services = client.once.state("ops_services")
    tries: list[int] = []

    @endpoint.on(claim=False)
    def heartbeat(message: PushMessage[Any]) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("not now")
        return client.wait(services.apply("billing", place(message), "ok")) if len(tries) == 2 else "no outcome"

    assert [endpoint.send(beat(5, "m5")).status for _ in range(2)] == [500, 200]
    assert [(event.key, event.error) for event in client.events_named("failed")] == [("m5", "ConnectionError")]
    with pytest.raises(Exception, match="not an Outcome"):
        endpoint.send(beat(6, "m6"))
