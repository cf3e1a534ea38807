"""CloudEvents over HTTP, structured and binary, written by their own SDK."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cloudevents.conversion import to_binary, to_structured
from cloudevents.http import CloudEvent

from onceward import RecordState
from onceward.http.push import InboundRequest, PushMessage
from onceward.testing import FakeClock
from tests.clients import Backend, SyncClient, make_backend
from tests.endpoints.helpers import cloudevents_of

APPLIED = (200, {"applied": True, "reason": "applied"})
DUPLICATE = (200, {"applied": False, "reason": "duplicate_message_noop"})
ATTRIBUTES = {"id": "e1", "source": "/shops/ä b", "type": "order.paid", "time": "2026-03-01T08:00:00+00:00"}


@pytest.fixture(params=["memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    """One store: these tests do not depend on it, and test_push.py covers both."""
    return make_backend(request, tmp_path, clock)


def event(data: Any, mode: str, **attributes: str) -> InboundRequest:
    made = CloudEvent({**ATTRIBUTES, **attributes}, data)
    if mode == "binary" and "datacontenttype" not in attributes:
        made["datacontenttype"] = "application/json"
    headers, body = to_binary(made) if mode == "binary" else to_structured(made)
    return InboundRequest("POST", headers, body or b"")


modes = pytest.mark.parametrize("mode", ["structured", "binary"])


@pytest.mark.mission("E1")
@modes
def test_an_event_is_handled_once(client: SyncClient, mode: str) -> None:
    endpoint = cloudevents_of(client)
    seen: list[PushMessage[Any]] = []
    endpoint.on({"order"}, attributes={"type": "order.paid"})(seen.append)
    assert [endpoint.post(event({"order": 7}, mode, shop="é")) for _ in range(2)] == [APPLIED, DUPLICATE]
    [one] = seen
    assert (one.id, one.payload, one.published_at) == ("e1", {"order": 7}, "2026-03-01T08:00:00+00:00")
    assert (one.source, one.attributes["shop"]) == ("/shops/ä b", "é")


def test_both_modes_bring_the_same_event(client: SyncClient) -> None:
    endpoint = cloudevents_of(client)
    seen: list[PushMessage[Any]] = []
    endpoint.on()(seen.append)
    assert endpoint.post(event({"order": 7}, "structured"))[0] == 200
    assert endpoint.post(event({"order": 7}, "binary"))[0] == 200
    assert len(seen) == 1


@modes
def test_an_id_belongs_to_its_source(client: SyncClient, mode: str) -> None:
    endpoint = cloudevents_of(client)
    endpoint.on()(lambda message: None)
    assert endpoint.post(event({"order": 7}, mode)) == APPLIED
    assert endpoint.post(event({"order": 7}, mode, source="/other")) == APPLIED
    assert endpoint.post(event({"order": 7}, mode, traceparent="00-1-2-3")) == DUPLICATE, "a proxy may add headers"


def test_data_may_come_as_base64(client: SyncClient) -> None:
    endpoint = cloudevents_of(client)
    seen: list[PushMessage[Any]] = []
    endpoint.on()(seen.append)
    body = {**ATTRIBUTES, "specversion": "1.0", "data_base64": base64.b64encode(b'{"order": 7}').decode()}
    request = InboundRequest(
        "POST", {"content-type": "application/cloudevents+json; charset=utf-8"}, json.dumps(body).encode()
    )
    assert endpoint.post(request) == APPLIED
    assert [one.payload for one in seen] == [{"order": 7}]


STRUCTURED = {"content-type": "application/cloudevents+json"}
WHOLE = {**ATTRIBUTES, "specversion": "1.0", "data": {"order": 7}}
NEEDED = ("id", "source", "type", "specversion")


NO_EVENTS = [
    InboundRequest("POST", {}, b""),
    InboundRequest("POST", {"content-type": "application/json"}, b'{"order": 7}'),
    InboundRequest("POST", STRUCTURED, b"{"),
    InboundRequest("POST", STRUCTURED, b"[]"),
    InboundRequest("POST", STRUCTURED, b'{"id": {}}'),
    InboundRequest("POST", {"content-type": "application/cloudevents-batch+json"}, json.dumps([WHOLE]).encode()),
    *(InboundRequest("POST", STRUCTURED, json.dumps({**WHOLE, name: ""}).encode()) for name in NEEDED),
    *(InboundRequest("POST", {f"ce-{name}": "x" for name in NEEDED if name != missing}, b"{}") for missing in NEEDED),
]


def test_an_invalid_event_or_a_missing_id_is_a_bad_request(client: SyncClient) -> None:
    endpoint = cloudevents_of(client)
    endpoint.on()(lambda message: None)
    for request in NO_EVENTS:
        with client.store_trouble("claim") as asked:
            status, problem = endpoint.post(request)
        assert (status, problem["code"], asked) == (400, "no_envelope", []), request.body


@modes
def test_data_that_is_no_object_is_recorded_and_acknowledged(client: SyncClient, mode: str) -> None:
    endpoint = cloudevents_of(client)
    endpoint.on()(lambda message: None)
    for id, data in (("text", "a text"), ("list", [1])):
        assert endpoint.send(event(data, mode, id=id)).status == 204
        assert client.read((ATTRIBUTES["source"], id), name="orders").state is RecordState.FAILED


@modes
def test_an_event_without_data_finds_its_handler_by_its_type(client: SyncClient, mode: str) -> None:
    endpoint = cloudevents_of(client)
    seen: list[Any] = []
    endpoint.on({"order"})(seen.append)
    endpoint.on(attributes={"type": ATTRIBUTES["type"]})(seen.append)
    assert endpoint.send(event(None, mode, id="none")).status == 200
    assert [(one.id, one.payload, one.data) for one in seen] == [("none", {}, b"")]


def test_a_body_that_is_not_even_said_to_be_json(client: SyncClient) -> None:
    endpoint = cloudevents_of(client)
    endpoint.on()(lambda message: None)
    request = InboundRequest(
        "POST", {**{f"ce-{n}": "x" for n in ("id", "source", "type", "specversion")}, "content-type": "text/xml"}, b"{}"
    )
    assert endpoint.send(request).status == 204
    assert client.once.counts["rejected"] == 1


@pytest.mark.finding("N45")
def test_two_ids_that_are_not_utf_8_never_become_the_same_id(client: SyncClient) -> None:
    endpoint = cloudevents_of(client)
    seen: list[PushMessage[Any]] = []
    endpoint.on()(seen.append)
    base = {"ce-specversion": "1.0", "ce-type": "t", "content-type": "application/json"}
    for id, source in (("%FE", "/s"), ("%FF", "/s"), ("e1", "/%FE"), ("e1", "/%FF")):
        request = InboundRequest("POST", {**base, "ce-id": id, "ce-source": source}, b'{"n": 1}')
        assert endpoint.post(request)[0] == 400, (id, source)
    assert seen == []
    request = InboundRequest("POST", {**base, "ce-id": "%C3%A4", "ce-source": "/s", "ce-x": "%FE"}, b'{"n": 1}')
    assert endpoint.post(request) == APPLIED
    assert seen[0].id == "ä"
