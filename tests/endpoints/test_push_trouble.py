"""Push endpoints whose work fails, is already running or cannot start: sync and async, on both stores."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onceward import RecordState
from onceward.http.envelope import Envelope, parse_pubsub
from onceward.http.push import PushMessage
from onceward.keys.fingerprint import fingerprint
from tests.clients import Pause, SyncClient
from tests.endpoints.helpers import pubsub_of, push
from tests.endpoints.push_answers import APPLIED, DUPLICATE, counting


@pytest.mark.mission("E1", "B5")
@pytest.mark.rival(24)
def test_a_handler_that_fails_makes_the_broker_deliver_again_and_then_succeeds(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    tries: list[str] = []

    @endpoint.on({"order"})
    def handle(message: PushMessage[Any]) -> None:
        tries.append(message.id)
        if len(tries) < 3:
            raise ConnectionError("secret.internal is down")

    answers = [endpoint.send(push({"order": 7})) for _ in range(4)]
    assert [answer.status for answer in answers] == [500, 500, 200, 200]
    assert b"secret.internal" not in answers[0].body, "the error is not shown to the sender"
    assert len(tries) == 3
    assert client.read("m1", name="orders").attempt == 3


@pytest.mark.finding("N27")
@pytest.mark.parametrize(("lease", "retry_after"), [("60s", "10"), ("4s", "4")])
def test_while_it_runs_a_second_delivery_is_not_acknowledged(client: SyncClient, lease: str, retry_after: str) -> None:
    """The running worker may still crash: if the duplicate were acknowledged, the message would be lost."""
    endpoint = pubsub_of(client, lease=lease)
    pause = Pause()
    endpoint.on({"order"})(lambda message: pause.here())
    first = client.start(endpoint.post, push({"order": 7}))
    pause.reached()
    second = endpoint.send(push({"order": 7}))
    assert (second.status, json.loads(second.body)["code"]) == (409, "running")
    assert dict(second.headers)["retry-after"] == retry_after
    pause.go()
    assert first.result(60) == APPLIED
    assert endpoint.post(push({"order": 7})) == DUPLICATE


@pytest.mark.finding("N15")
@pytest.mark.parametrize("result", [None, {"order": 7}], ids=["None", "dict"])
def test_the_result_of_a_handler_without_an_annotation_is_stored(client: SyncClient, result: Any) -> None:
    endpoint = pubsub_of(client)
    endpoint.on({"order"})(lambda message: result)
    assert endpoint.post(push({"order": 7})) == APPLIED
    assert endpoint.post(push({"order": 7})) == DUPLICATE
    assert not client.events_named("result_not_stored")


@pytest.mark.fault("F30")
def test_after_a_crash_the_next_delivery_runs_it(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    seen = counting(endpoint, {"order"}, lease="60s")
    client.silent_owner("m1", name="orders", lease="60s")
    assert endpoint.send(push({"order": 7})).status == 409
    client.clock.advance("61s")
    assert endpoint.post(push({"order": 7})) == APPLIED
    assert len(seen) == 1


def test_a_final_failure_is_acknowledged_and_not_tried_again(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    tries: list[int] = []

    @endpoint.on({"order"}, final=LookupError)
    def handle(message: PushMessage[Any]) -> None:
        tries.append(1)
        raise KeyError("no such customer")

    assert [endpoint.send(push({"order": 7})).status for _ in range(3)] == [204] * 3
    assert len(tries) == 1
    assert client.read("m1", name="orders").record.final


@pytest.mark.fault("F72")
def test_attempts_run_out_and_the_poison_is_acknowledged_but_stays_on_record(client: SyncClient) -> None:
    endpoint = pubsub_of(client)

    @endpoint.on({"order"}, max_attempts=2)
    def handle(message: PushMessage[Any]) -> None:
        raise RuntimeError("always")

    assert [endpoint.send(push({"order": 7})).status for _ in range(4)] == [500, 204, 204, 204]
    assert client.read("m1", name="orders").state is RecordState.FAILED


def test_attempts_that_are_fewer_now_have_run_out_too(client: SyncClient) -> None:
    """The limit was lowered below the failures so far: otherwise each delivery would be a server error forever."""
    before = pubsub_of(client)
    before.on()(raising := lambda _message: 1 / 0)
    assert [before.post(push({"order": 7}))[0] for _ in range(2)] == [500, 500]
    limited = pubsub_of(client, max_attempts=2)
    limited.on()(raising)
    assert limited.post(push({"order": 7})) == (204, None)
    assert client.read("m1", name="orders").attempt == 2


def test_a_failure_that_is_not_due_yet_says_when_it_is(client: SyncClient) -> None:
    endpoint = pubsub_of(client)

    @endpoint.on({"order"}, retry_delay="30s")
    def handle(message: PushMessage[Any]) -> None:
        raise RuntimeError("always")

    for _ in range(2):
        answer = endpoint.send(push({"order": 7}))
        assert (answer.status, dict(answer.headers)["retry-after"]) == (500, "30")


def test_work_with_an_unknown_outcome_stays_with_the_broker(client: SyncClient) -> None:
    endpoint = pubsub_of(client)

    @endpoint.on({"order"}, after_crash="park")
    def handle(message: PushMessage[Any]) -> None:
        raise TimeoutError("was it charged?")

    assert [endpoint.send(push({"order": 7})).status for _ in range(2)] == [503, 503]
    assert client.read("m1", name="orders").state is RecordState.PARKED


@pytest.mark.fault("F18")
def test_a_message_id_with_another_payload_is_recorded_and_not_redelivered_for_days(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    seen = counting(endpoint, {"order"})
    endpoint.post(push({"order": 7}))
    assert endpoint.post(push({"order": 8})) == (200, {"applied": False, "reason": "mismatch"})
    assert len(seen) == 1
    assert client.once.counts["mismatch"] == 1
    endpoint.post(push(b"not even JSON"))
    requests = [push({"order": 8}), push(b"not even JSON")]
    for envelope in map(parse_pubsub, requests):
        assert isinstance(envelope, Envelope)
        content = fingerprint(envelope.payload).hex()[:16]
        assert client.read(("m1", "mismatch", content), name="orders").record.final, "on record, for a person to see"


@pytest.mark.fault("F50")
def test_while_the_store_is_down_nothing_runs_and_nothing_is_acknowledged(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    seen = counting(endpoint, {"order"})
    with client.store_trouble("claim"):
        for request in (push({"order": 7}), push({"weather": 1}), push(b"?")):
            status, problem = endpoint.post(request)
            assert (status, problem["code"]) == (503, "store_unavailable")
    assert seen == []
    assert endpoint.post(push({"order": 7})) == APPLIED


@pytest.mark.fault("F37")
def test_a_server_that_is_stopping_acknowledges_nothing(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    seen = counting(endpoint)
    client.once.stop()
    status, problem = endpoint.post(push({"order": 7}))
    assert (status, problem["code"], seen) == (503, "stopping", [])
