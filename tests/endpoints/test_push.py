"""Push endpoints: the responses to a broker, sync and async, on both stores (the fifth seed, over HTTP)."""

from __future__ import annotations

import json
from typing import Any, TypedDict

import pytest
from msgspec import Struct
from pydantic import BaseModel

from onceward import RecordState
from onceward.http.push import InboundRequest, PushMessage, Response
from tests.clients import SyncClient
from tests.endpoints.helpers import enveloped, pubsub_of, push
from tests.endpoints.push_answers import APPLIED, DUPLICATE, counting


@pytest.mark.mission("E1", "E3", "B6")
def test_a_message_is_handled_once_and_every_redelivery_is_acknowledged(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    seen = counting(endpoint, {"order"})
    request = push({"order": 7}, "m1", attributes={"kind": "new"}, orderingKey="o7")
    assert [endpoint.post(request) for _ in range(3)] == [APPLIED, DUPLICATE, DUPLICATE]
    assert endpoint.post(push({"order": 7}, "m2")) == APPLIED, "another message with the same content"
    [one, _] = seen
    assert (one.id, one.payload, one.attributes) == ("m1", {"order": 7}, {"kind": "new"})
    assert (one.published_at, one.ordering_key) == ("2026-03-01T08:00:00Z", "o7")
    assert one.source == "projects/p/subscriptions/s"


@pytest.mark.mission("E1")
def test_the_message_id_may_be_written_in_both_ways(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    seen = counting(endpoint, {"order"})
    old = json.loads(enveloped({"order": 7}, "m1"))
    old["message"]["message_id"] = old["message"].pop("messageId")
    assert endpoint.post(push({"order": 7}, "m1")) == APPLIED
    assert endpoint.post(InboundRequest("POST", {}, json.dumps(old).encode())) == DUPLICATE
    assert len(seen) == 1


NO_ENVELOPES: list[bytes] = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[]",
    b"null",
    b"{}",
    b'{"message": null}',
    b'{"message": {}}',
    b'{"message": {"data": "e30="}}',
    b'{"message": {"data": "e30=", "messageId": ""}}',
    b'{"message": {"data": "e30=", "messageId": 7}}',
    b'{"message": {"data": {}, "messageId": "m"}}',
    b'{"message": {"data": "e30=", "messageId": "m", "attributes": []}}',
    b'{"message": {"data": "e30=", "messageId": "m\\ud800"}}',
    b"[" * 100_000,
]


@pytest.mark.mission("E1")
def test_an_invalid_envelope_or_a_missing_id_is_a_bad_request_and_the_store_is_not_asked(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    seen = counting(endpoint)
    for body in NO_ENVELOPES:
        with client.store_trouble("claim") as asked:
            status, problem = endpoint.post(InboundRequest("POST", {}, body))
        assert (status, problem["code"], asked, seen) == (400, "no_envelope", [], []), body[:60]
    assert [event.reason for event in client.events_named("rejected")] == ["no_envelope"] * len(NO_ENVELOPES)


UNDECODABLE: list[bytes] = [b"", b"not json", b"[1]", b"7", b'"text"', b"\xff", b'{"a": NaN}', b"[" * 100_000]


@pytest.mark.mission("E1")
@pytest.mark.fault("F72")
def test_undecodable_data_is_recorded_as_failed_for_good_and_acknowledged(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    seen = counting(endpoint)
    for number, data in enumerate(UNDECODABLE):
        assert [endpoint.send(push(data, f"m{number}")).status for _ in range(2)] == [204, 204], data[:20]
        record = client.read(f"m{number}", name="orders")
        assert (record.state, record.record.final) == (RecordState.FAILED, True)
        assert record.error.startswith("Rejected: undecodable_data")
    assert client.once.counts["rejected"] == 2 * len(UNDECODABLE)
    assert client.once.counts["failed"] == len(UNDECODABLE)
    assert seen == []


def test_data_that_is_not_base64_is_undecodable_too(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    counting(endpoint)
    for number, data in enumerate(("%%%", "e30", "é", "e3 0=")):
        body = json.dumps({"message": {"messageId": f"m{number}", "data": data}}).encode()
        assert endpoint.send(InboundRequest("POST", {}, body)).status == 204
        assert client.read(f"m{number}", name="orders").state is RecordState.FAILED


@pytest.mark.mission("E1")
def test_an_unknown_shape_is_recorded_and_acknowledged_and_no_storm_follows(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    seen = counting(endpoint, {"order"})
    assert [endpoint.send(push({"weather": "rain"})).status for _ in range(3)] == [204] * 3
    record = client.read("m1", name="orders")
    assert (record.state, record.record.final, record.attempt) == (RecordState.FAILED, True, 1)
    assert record.error == "Rejected: unknown_shape: its members are weather"
    events = client.events_named("rejected")
    assert {(event.reason, event.key, event.scope) for event in events} == {("unknown_shape", "m1", "default/orders")}
    assert "weather" not in str(events), "the content of a message is in its record and in no log"
    assert endpoint.post(push({"order": 1}, "m2")) == APPLIED
    assert len(seen) == 1


class Heartbeat(Struct):
    service: str
    status: str
    sequence: int = 0


class Whatever(Struct):
    note: str = ""


class Invoice(TypedDict):
    invoice: int


class Model(BaseModel):
    celsius: float


@pytest.mark.mission("E1")
def test_messages_find_their_handler_by_shape_and_attribute(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    urgent = counting(endpoint, {"service"}, attributes={"urgent": "yes"})
    beats = counting(endpoint, Heartbeat)
    invoices = counting(endpoint, Invoice)
    models = counting(endpoint, Model)
    rest = counting(endpoint, attributes={"kind": "other"})
    beat = {"service": "billing", "status": "ok", "sequence": 3}
    sent: list[tuple[Any, dict[str, str]]] = [
        (beat, {"urgent": "yes"}),
        (beat, {"urgent": "no"}),
        ({"invoice": 7}, {}),
        ({"celsius": 21.5}, {}),
        ({"anything": 1}, {"kind": "other"}),
        ({"service": "billing", "status": 7}, {}),  # not a heartbeat: its status is not a string
    ]
    statuses = [
        endpoint.send(push(payload, f"m{n}", attributes=given)).status for n, (payload, given) in enumerate(sent)
    ]
    assert statuses == [200, 200, 200, 200, 200, 204]
    assert [one.payload for one in urgent] == [beat]
    assert [one.payload for one in beats] == [Heartbeat("billing", "ok", 3)]
    assert [one.payload for one in invoices] == [{"invoice": 7}]
    assert [one.payload for one in models] == [Model(celsius=21.5)]
    assert [one.payload for one in rest] == [{"anything": 1}]


@pytest.mark.mission("E1")
def test_a_message_without_data_finds_its_handler_by_its_attributes(client: SyncClient) -> None:
    """Pub/Sub accepts a message with attributes and without data. Without an object there is no shape to match."""
    endpoint = pubsub_of(client)
    anything = counting(endpoint, Whatever)
    closed = counting(endpoint, attributes={"kind": "closed"})
    sent: list[dict[str, Any]] = [
        {"messageId": "m1", "attributes": {"kind": "closed"}},
        {"messageId": "m1", "attributes": {"kind": "closed"}},
        {"messageId": "m2", "attributes": {"kind": "closed"}, "data": ""},
        {"messageId": "m3", "attributes": {"kind": "opened"}},
        {"messageId": "m4"},
        {"messageId": "m5", "attributes": {}, "data": "e30="},
    ]
    bodies = [json.dumps({"message": message}).encode() for message in sent]
    assert [endpoint.send(InboundRequest("POST", {}, body)).status for body in bodies] == [200, 200, 200, 204, 204, 200]
    assert [(one.id, one.payload, one.data) for one in closed] == [("m1", {}, b""), ("m2", {}, b"")]
    assert [one.id for one in anything] == ["m5"], "an empty object matches every shape whose members are all optional"
    assert client.read("m3", name="orders").error == "Rejected: unknown_shape: it has no data"
    assert client.read("m4", name="orders").error.startswith("Rejected: undecodable_data")


def test_a_handlers_own_answer_is_stored_and_a_duplicate_gets_the_same(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    endpoint.on({"order"})(lambda message: Response(202, message.data, (("x-a", "1"), ("x-a", "2"))))
    first = endpoint.send(push({"order": 7}))
    assert (first.status, first.body, first.headers) == (202, b'{"order": 7}', (("x-a", "1"), ("x-a", "2")))
    assert endpoint.send(push({"order": 7})) == first


UNSENDABLE: dict[str, Any] = {
    "text": Response(200, "text"),  # type: ignore[arg-type]  # the mistake
    "stream": Response(200, iter([b"chunk"])),  # type: ignore[arg-type]  # the same
    "beyond latin-1": Response(200, b"", (("location", "/orders/Łódź"),)),
    "another line": Response(200, b"", (("location", "/a\r\nset-cookie: b"),)),
    "no name": Response(200, b"", (("x a", "1"),)),
    "a dict": Response(200, b"", {"x-a": "1"}),  # type: ignore[arg-type]  # the same
    "a body where there is none": Response(204, b"body"),
    "no end": Response(100),
}


@pytest.mark.rival(13)
@pytest.mark.fault("F21", "F77")
@pytest.mark.parametrize("what", UNSENDABLE)
def test_an_answer_that_no_server_could_send_is_reported_and_the_work_counts_as_done(
    client: SyncClient, what: str
) -> None:
    """Otherwise the sender would get a server error for completed work, and redeliver it for days."""
    endpoint = pubsub_of(client)
    ran: list[str] = []

    @endpoint.on({"order"})
    def handle(message: PushMessage[Any]) -> Response:
        ran.append(message.id)
        answer: Response = UNSENDABLE[what]
        return answer

    assert [endpoint.post(push({"order": 7}))[0] for _ in range(2)] == [200, 200]
    assert ran == ["m1"]
    assert "UnsendableResponse" in client.events_named("result_not_stored")[0].reason


def test_an_answer_that_settles_nothing_still_does_if_it_cannot_be_sent_as_it_is(client: SyncClient) -> None:
    endpoint = pubsub_of(client)
    endpoint.on({"order"})(lambda message: Response(503, b"later", (("x-a", "Łódź"),)))
    assert [endpoint.send(push({"order": 7})).status for _ in range(2)] == [503, 503]
    assert client.read("m1", name="orders").attempt == 2


@pytest.mark.rival(24)
@pytest.mark.parametrize("choices", [{"final": Exception}, {"not_applied": Exception}, {"retry": OSError}, {}])
def test_declared_exceptions_do_not_apply_to_an_answer_that_settles_nothing(
    client: SyncClient, choices: dict[str, Any]
) -> None:
    """Otherwise `final=Exception` would acknowledge a message that the handler asked to get again."""
    endpoint = pubsub_of(client, **choices)
    answers = [Response(503), Response(201)]
    endpoint.on({"order"})(lambda message: answers.pop(0))
    assert [endpoint.send(push({"order": 7})).status for _ in range(3)] == [503, 201, 201]


@pytest.mark.rival(17)
def test_an_answer_that_settles_nothing_is_sent_but_not_stored(client: SyncClient) -> None:
    endpoint = pubsub_of(client, retry=OSError)
    vague = [500, 503, 429, 408, 409, 425]
    answers = [*(Response(status, b"not now", (("retry-after", "7"),)) for status in vague), Response(201, b"made")]
    endpoint.on({"order"})(lambda message: answers.pop(0))
    for status in vague:
        first = endpoint.send(push({"order": 7}))
        assert (first.status, first.body, first.headers) == (status, b"not now", (("retry-after", "7"),))
    assert [endpoint.send(push({"order": 7})).status for _ in range(2)] == [201, 201]
    assert client.read("m1", name="orders").attempt == len(vague) + 1


def test_only_posts_are_answered_and_only_up_to_a_limit(client: SyncClient) -> None:
    endpoint = pubsub_of(client, limit=300)
    counting(endpoint)
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        answer = endpoint.send(InboundRequest(method, {}, enveloped({"order": 7})))
        assert (answer.status, dict(answer.headers)["allow"]) == (405, "POST")
    assert endpoint.send(push({"order": "x" * 300})).status == 413
    assert endpoint.post(push({"order": 7})) == APPLIED
