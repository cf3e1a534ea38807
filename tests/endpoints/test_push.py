"""Push endpoints: what a broker is answered, in both colours and on both stores (the fifth seed, over HTTP)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypedDict

import pytest
from msgspec import Struct
from pydantic import BaseModel

from onceward import ConfigurationError, Once, OncewardWarning, State
from onceward.http.envelope import Envelope, pubsub
from onceward.http.push import Answer, AsyncPubSubPush, Message, PubSubPush, Request, bearer_token, query_token
from onceward.model.fingerprint import fingerprint
from tests.endpoints.stage import Stand, enveloped, pubsub_of, push
from tests.faces import Face, Pause

APPLIED = (200, {"applied": True, "reason": "applied"})
DUPLICATE = (200, {"applied": False, "reason": "duplicate_message_noop"})


def counting(stand: Stand, *args: Any, **kwargs: Any) -> list[Message[Any]]:
    """A handler that keeps what it gets."""
    seen: list[Message[Any]] = []
    stand.on(*args, **kwargs)(seen.append)
    return seen


@pytest.mark.mission("E1", "E3", "B6")
def test_a_message_is_handled_once_and_every_redelivery_is_acknowledged(face: Face) -> None:
    stand = pubsub_of(face)
    seen = counting(stand, {"order"})
    request = push({"order": 7}, "m1", attributes={"kind": "new"}, orderingKey="o7")
    assert [stand.post(request) for _ in range(3)] == [APPLIED, DUPLICATE, DUPLICATE]
    assert stand.post(push({"order": 7}, "m2")) == APPLIED, "another message with the same content"
    [one, _] = seen
    assert (one.id, one.payload, one.attributes) == ("m1", {"order": 7}, {"kind": "new"})
    assert (one.published_at, one.ordering_key) == ("2026-03-01T08:00:00Z", "o7")
    assert one.source == "projects/p/subscriptions/s"


@pytest.mark.mission("E1")
def test_the_message_id_may_be_written_in_both_ways(face: Face) -> None:
    stand = pubsub_of(face)
    seen = counting(stand, {"order"})
    old = json.loads(enveloped({"order": 7}, "m1"))
    old["message"]["message_id"] = old["message"].pop("messageId")
    assert stand.post(push({"order": 7}, "m1")) == APPLIED
    assert stand.post(Request("POST", {}, json.dumps(old).encode())) == DUPLICATE
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
def test_what_is_no_envelope_or_has_no_id_is_a_bad_request_and_the_store_is_not_asked(face: Face) -> None:
    stand = pubsub_of(face)
    seen = counting(stand)
    for body in NO_ENVELOPES:
        with face.store_trouble("claim") as asked:
            status, told = stand.post(Request("POST", {}, body))
        assert (status, told["code"], asked, seen) == (400, "no_envelope", [], []), body[:60]
    assert [event.reason for event in face.told("rejected")] == ["no_envelope"] * len(NO_ENVELOPES)


UNDECODABLE: list[bytes] = [b"", b"not json", b"[1]", b"7", b'"text"', b"\xff", b'{"a": NaN}', b"[" * 100_000]


@pytest.mark.mission("E1")
@pytest.mark.fault("F72")
def test_undecodable_data_is_recorded_as_failed_for_good_and_acknowledged(face: Face) -> None:
    stand = pubsub_of(face)
    seen = counting(stand)
    for number, data in enumerate(UNDECODABLE):
        assert [stand.send(push(data, f"m{number}")).status for _ in range(2)] == [204, 204], data[:20]
        record = face.read(f"m{number}", name="orders")
        assert (record.state, record.record.final) == (State.FAILED, True)
        assert record.error.startswith("Rejected: undecodable_data")
    assert face.once.counts["rejected"] == 2 * len(UNDECODABLE)
    assert face.once.counts["failed"] == len(UNDECODABLE)
    assert seen == []


def test_data_that_is_not_base64_is_undecodable_too(face: Face) -> None:
    stand = pubsub_of(face)
    counting(stand)
    for number, data in enumerate(("%%%", "e30", "é", "e3 0=")):
        body = json.dumps({"message": {"messageId": f"m{number}", "data": data}}).encode()
        assert stand.send(Request("POST", {}, body)).status == 204
        assert face.read(f"m{number}", name="orders").state is State.FAILED


@pytest.mark.mission("E1")
def test_an_unknown_shape_is_recorded_and_acknowledged_and_no_storm_follows(face: Face) -> None:
    stand = pubsub_of(face)
    seen = counting(stand, {"order"})
    assert [stand.send(push({"weather": "rain"})).status for _ in range(3)] == [204] * 3
    record = face.read("m1", name="orders")
    assert (record.state, record.record.final, record.attempt) == (State.FAILED, True, 1)
    assert record.error == "Rejected: unknown_shape: its members are weather"
    told = face.told("rejected")
    assert {(event.reason, event.key, event.scope) for event in told} == {("unknown_shape", "m1", "default/orders")}
    assert "weather" not in str(told), "what is in a message is on its record, and in no log"
    assert stand.post(push({"order": 1}, "m2")) == APPLIED
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
def test_messages_find_their_handler_by_shape_and_attribute(face: Face) -> None:
    stand = pubsub_of(face)
    urgent = counting(stand, {"service"}, attributes={"urgent": "yes"})
    beats = counting(stand, Heartbeat)
    invoices = counting(stand, Invoice)
    models = counting(stand, Model)
    rest = counting(stand, attributes={"kind": "other"})
    beat = {"service": "billing", "status": "ok", "sequence": 3}
    sent: list[tuple[Any, dict[str, str]]] = [
        (beat, {"urgent": "yes"}),
        (beat, {"urgent": "no"}),
        ({"invoice": 7}, {}),
        ({"celsius": 21.5}, {}),
        ({"anything": 1}, {"kind": "other"}),
        ({"service": "billing", "status": 7}, {}),  # no heartbeat: its status is no text
    ]
    statuses = [stand.send(push(payload, f"m{n}", attributes=given)).status for n, (payload, given) in enumerate(sent)]
    assert statuses == [200, 200, 200, 200, 200, 204]
    assert [one.payload for one in urgent] == [beat]
    assert [one.payload for one in beats] == [Heartbeat("billing", "ok", 3)]
    assert [one.payload for one in invoices] == [{"invoice": 7}]
    assert [one.payload for one in models] == [Model(celsius=21.5)]
    assert [one.payload for one in rest] == [{"anything": 1}]


@pytest.mark.mission("E1")
def test_a_message_without_data_finds_its_handler_by_its_attributes(face: Face) -> None:
    """Pub/Sub takes a message with attributes and nothing else. No object has no shape."""
    stand = pubsub_of(face)
    anything = counting(stand, Whatever)
    closed = counting(stand, attributes={"kind": "closed"})
    sent: list[dict[str, Any]] = [
        {"messageId": "m1", "attributes": {"kind": "closed"}},
        {"messageId": "m1", "attributes": {"kind": "closed"}},
        {"messageId": "m2", "attributes": {"kind": "closed"}, "data": ""},
        {"messageId": "m3", "attributes": {"kind": "opened"}},
        {"messageId": "m4"},
        {"messageId": "m5", "attributes": {}, "data": "e30="},
    ]
    bodies = [json.dumps({"message": message}).encode() for message in sent]
    assert [stand.send(Request("POST", {}, body)).status for body in bodies] == [200, 200, 200, 204, 204, 200]
    assert [(one.id, one.payload, one.data) for one in closed] == [("m1", {}, b""), ("m2", {}, b"")]
    assert [one.id for one in anything] == ["m5"], "an empty object has every shape whose members may be missing"
    assert face.read("m3", name="orders").error == "Rejected: unknown_shape: it has no data"
    assert face.read("m4", name="orders").error.startswith("Rejected: undecodable_data")


@pytest.mark.mission("E1", "B5")
@pytest.mark.rival(24)
def test_a_handler_that_fails_makes_the_broker_deliver_again_and_then_succeeds(face: Face) -> None:
    stand = pubsub_of(face)
    tries: list[str] = []

    @stand.on({"order"})
    def handle(message: Message[Any]) -> None:
        tries.append(message.id)
        if len(tries) < 3:
            raise ConnectionError("secret.internal is down")

    answers = [stand.send(push({"order": 7})) for _ in range(4)]
    assert [answer.status for answer in answers] == [500, 500, 200, 200]
    assert b"secret.internal" not in answers[0].body, "what it raised is nobody's business outside"
    assert len(tries) == 3
    assert face.read("m1", name="orders").attempt == 3


def test_while_it_runs_a_second_delivery_is_not_acknowledged(face: Face) -> None:
    """Whoever has it may still die: if the duplicate were acknowledged, nobody would bring the message back."""
    stand = pubsub_of(face)
    pause = Pause()
    stand.on({"order"})(lambda message: pause.here())
    first = face.start(stand.post, push({"order": 7}))
    pause.reached()
    second = stand.send(push({"order": 7}))
    assert (second.status, json.loads(second.body)["code"]) == (409, "running")
    assert dict(second.headers)["retry-after"] == "10"
    pause.go()
    assert first.result(20) == APPLIED
    assert stand.post(push({"order": 7})) == DUPLICATE


@pytest.mark.fault("F30")
def test_after_a_crash_the_next_delivery_runs_it(face: Face) -> None:
    stand = pubsub_of(face)
    seen = counting(stand, {"order"}, lease="60s")
    face.silent_owner("m1", name="orders", lease="60s")
    assert stand.send(push({"order": 7})).status == 409
    face.clock.advance("61s")
    assert stand.post(push({"order": 7})) == APPLIED
    assert len(seen) == 1


def test_a_final_failure_is_acknowledged_and_not_tried_again(face: Face) -> None:
    stand = pubsub_of(face)
    tries: list[int] = []

    @stand.on({"order"}, final=LookupError)
    def handle(message: Message[Any]) -> None:
        tries.append(1)
        raise KeyError("no such customer")

    assert [stand.send(push({"order": 7})).status for _ in range(3)] == [204] * 3
    assert len(tries) == 1
    assert face.read("m1", name="orders").record.final


@pytest.mark.fault("F72")
def test_attempts_run_out_and_the_poison_is_acknowledged_but_stays_on_record(face: Face) -> None:
    stand = pubsub_of(face)

    @stand.on({"order"}, max_attempts=2)
    def handle(message: Message[Any]) -> None:
        raise RuntimeError("always")

    assert [stand.send(push({"order": 7})).status for _ in range(4)] == [500, 204, 204, 204]
    assert face.read("m1", name="orders").state is State.FAILED


def test_attempts_that_are_fewer_now_have_run_out_too(face: Face) -> None:
    """Declared with a limit after it has failed more often: else it would be a server error for ever."""
    before = pubsub_of(face)
    before.on()(raising := lambda _message: 1 / 0)
    assert [before.post(push({"order": 7}))[0] for _ in range(2)] == [500, 500]
    limited = pubsub_of(face, max_attempts=2)
    limited.on()(raising)
    assert limited.post(push({"order": 7})) == (204, None)
    assert face.read("m1", name="orders").attempt == 2


def test_a_failure_that_is_not_due_yet_says_when_it_is(face: Face) -> None:
    stand = pubsub_of(face)

    @stand.on({"order"}, retry_delay="30s")
    def handle(message: Message[Any]) -> None:
        raise RuntimeError("always")

    for _ in range(2):
        answer = stand.send(push({"order": 7}))
        assert (answer.status, dict(answer.headers)["retry-after"]) == (500, "30")


def test_what_nobody_knows_the_end_of_stays_with_the_broker(face: Face) -> None:
    stand = pubsub_of(face)

    @stand.on({"order"}, after_crash="park")
    def handle(message: Message[Any]) -> None:
        raise TimeoutError("was it charged?")

    assert [stand.send(push({"order": 7})).status for _ in range(2)] == [503, 503]
    assert face.read("m1", name="orders").state is State.PARKED


@pytest.mark.fault("F18")
def test_a_message_id_with_another_payload_is_told_and_not_repeated_for_days(face: Face) -> None:
    stand = pubsub_of(face)
    seen = counting(stand, {"order"})
    stand.post(push({"order": 7}))
    assert stand.post(push({"order": 8})) == (200, {"applied": False, "reason": "mismatch"})
    assert len(seen) == 1
    assert face.once.counts["mismatch"] == 1
    stand.post(push(b"not even JSON"))
    told = [push({"order": 8}), push(b"not even JSON")]
    for envelope in map(pubsub, told):
        assert isinstance(envelope, Envelope)
        content = fingerprint(envelope.payload).hex()[:16]
        assert face.read(("m1", "mismatch", content), name="orders").record.final, "on record, for a person to see"


@pytest.mark.fault("F50")
def test_while_the_store_is_down_nothing_runs_and_nothing_is_acknowledged(face: Face) -> None:
    stand = pubsub_of(face)
    seen = counting(stand, {"order"})
    with face.store_trouble("claim"):
        for request in (push({"order": 7}), push({"weather": 1}), push(b"?")):
            status, told = stand.post(request)
            assert (status, told["code"]) == (503, "store_unavailable")
    assert seen == []
    assert stand.post(push({"order": 7})) == APPLIED


@pytest.mark.fault("F37")
def test_a_server_that_is_stopping_acknowledges_nothing(face: Face) -> None:
    stand = pubsub_of(face)
    seen = counting(stand)
    face.once.stop()
    status, told = stand.post(push({"order": 7}))
    assert (status, told["code"], seen) == (503, "stopping", [])


def test_a_handlers_own_answer_is_stored_and_a_duplicate_gets_the_same(face: Face) -> None:
    stand = pubsub_of(face)
    stand.on({"order"})(lambda message: Answer(202, message.data, (("x-a", "1"), ("x-a", "2"))))
    first = stand.send(push({"order": 7}))
    assert (first.status, first.body, first.headers) == (202, b'{"order": 7}', (("x-a", "1"), ("x-a", "2")))
    assert stand.send(push({"order": 7})) == first


UNSENDABLE: dict[str, Any] = {
    "text": Answer(200, "text"),  # type: ignore[arg-type]  # the mistake
    "stream": Answer(200, iter([b"chunk"])),  # type: ignore[arg-type]  # the same
    "beyond latin-1": Answer(200, b"", (("location", "/orders/Łódź"),)),
    "another line": Answer(200, b"", (("location", "/a\r\nset-cookie: b"),)),
    "no name": Answer(200, b"", (("x a", "1"),)),
    "a dict": Answer(200, b"", {"x-a": "1"}),  # type: ignore[arg-type]  # the same
    "a body where there is none": Answer(204, b"body"),
    "no end": Answer(100),
}


@pytest.mark.rival(13)
@pytest.mark.fault("F21", "F77")
@pytest.mark.parametrize("what", UNSENDABLE)
def test_an_answer_that_no_server_could_send_is_told_and_the_work_counts_as_done(face: Face, what: str) -> None:
    """Else the sender would get a server error for work that is done, and deliver it for days."""
    stand = pubsub_of(face)
    ran: list[str] = []

    @stand.on({"order"})
    def handle(message: Message[Any]) -> Answer:
        ran.append(message.id)
        answer: Answer = UNSENDABLE[what]
        return answer

    assert [stand.post(push({"order": 7}))[0] for _ in range(2)] == [200, 200]
    assert ran == ["m1"]
    assert "UnsendableAnswer" in face.told("result_not_stored")[0].reason


def test_an_answer_that_settles_nothing_still_does_if_it_cannot_be_sent_as_it_is(face: Face) -> None:
    stand = pubsub_of(face)
    stand.on({"order"})(lambda message: Answer(503, b"later", (("x-a", "Łódź"),)))
    assert [stand.send(push({"order": 7})).status for _ in range(2)] == [503, 503]
    assert face.read("m1", name="orders").attempt == 2


@pytest.mark.rival(24)
@pytest.mark.parametrize("choices", [{"final": Exception}, {"not_applied": Exception}, {"retry": OSError}, {}])
def test_an_answer_that_settles_nothing_is_no_error_of_which_anything_is_declared(
    face: Face, choices: dict[str, Any]
) -> None:
    """Else `final=Exception` would acknowledge what the handler has asked to get once more."""
    stand = pubsub_of(face, **choices)
    answers = [Answer(503), Answer(201)]
    stand.on({"order"})(lambda message: answers.pop(0))
    assert [stand.send(push({"order": 7})).status for _ in range(3)] == [503, 201, 201]


@pytest.mark.rival(17)
def test_an_answer_that_settles_nothing_is_sent_but_not_stored(face: Face) -> None:
    stand = pubsub_of(face, retry=OSError)
    vague = [500, 503, 429, 408, 409, 425]
    answers = [*(Answer(status, b"not now", (("retry-after", "7"),)) for status in vague), Answer(201, b"made")]
    stand.on({"order"})(lambda message: answers.pop(0))
    for status in vague:
        first = stand.send(push({"order": 7}))
        assert (first.status, first.body, first.headers) == (status, b"not now", (("retry-after", "7"),))
    assert [stand.send(push({"order": 7})).status for _ in range(2)] == [201, 201]
    assert face.read("m1", name="orders").attempt == len(vague) + 1


def test_only_posts_are_answered_and_only_up_to_a_limit(face: Face) -> None:
    stand = pubsub_of(face, limit=300)
    counting(stand)
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        answer = stand.send(Request(method, {}, enveloped({"order": 7})))
        assert (answer.status, dict(answer.headers)["allow"]) == (405, "POST")
    assert stand.send(push({"order": "x" * 300})).status == 413
    assert stand.post(push({"order": 7})) == APPLIED


# ── who may push ──


def test_a_token_that_does_not_hold_never_touches_the_store(face: Face) -> None:
    stand = pubsub_of(face, check=bearer_token("right", "rotated"))
    seen = counting(stand)
    with face.store_trouble("claim") as asked:
        for given in ("", "Bearer wrong", "Bearer right2", "Basic right", "Bearer rigth", "right", "Bearer é"):
            answer = stand.send(push({"order": 7}, headers={"authorization": given} if given else {}))
            assert (answer.status, dict(answer.headers)["www-authenticate"]) == (401, "Bearer")
    assert (asked, seen) == ([], [])
    assert stand.post(push({"order": 7}, headers={"Authorization": "Bearer rotated"})) == APPLIED
    assert face.once.counts["rejected"] == 7


def test_a_token_may_be_in_the_url(face: Face) -> None:
    stand = pubsub_of(face, check=query_token("right"))
    counting(stand)
    body = enveloped({"order": 7})
    for query, status in (("", 401), ("token=wrong", 401), ("token=right&token=wrong", 401), ("token=right", 200)):
        assert stand.send(Request("POST", {}, body, query=query)).status == status


def test_a_check_that_raises_lets_nobody_in(face: Face) -> None:
    raised: list[Exception] = []

    def check(request: Request) -> bool:
        raise raised[-1]

    stand = pubsub_of(face, check=check)
    seen = counting(stand)
    for error, status in ((ValueError("expired"), 401), (PermissionError(), 401), (TimeoutError("no network"), 503)):
        raised.append(error)
        with face.store_trouble("claim") as asked:
            assert stand.send(push({"order": 7})).status == status
        assert (asked, seen) == ([], [])


async def test_an_async_check_is_awaited() -> None:
    async def check(request: Request) -> bool:
        return request.header("x-ok") == "yes"

    with Once("memory://") as once:
        endpoint = AsyncPubSubPush(once.aio, "orders", check=check)

        @endpoint.on({"order"})
        async def handle(message: Message[Any]) -> None:
            """Nothing."""

        assert (await endpoint.respond(push({"order": 7}, headers={"x-ok": "no"}))).status == 401
        assert (await endpoint.respond(push({"order": 7}, headers={"x-ok": "yes"}))).status == 200


class Suspicious:
    """An async check that does not look like one."""

    async def __call__(self, request: Request) -> bool:
        return False


def test_a_check_whose_answer_has_to_be_awaited_lets_nobody_in_by_accident(face: Face) -> None:
    """The trap: a coroutine is true, whatever it would have said."""
    stand = pubsub_of(face, check=Suspicious())
    seen = counting(stand)
    assert stand.send(push({"order": 7})).status == (401 if face.colour == "async" else 503)
    assert seen == []


# ── what cannot work is refused when it is declared ──


def test_colours_and_shapes_that_cannot_work_are_refused() -> None:
    async def coroutine(message: Message[Any]) -> None: ...

    def plain(message: Message[Any]) -> None: ...

    def yielding(message: Message[Any]) -> Iterator[bytes]:
        yield b"acknowledged, and nothing of it was ever run"

    async def yielding_async(message: Message[Any]) -> AsyncIterator[bytes]:
        yield b"the same"

    async def check(request: Request) -> bool:
        return True

    anything: Any = PubSubPush
    with Once("memory://") as once:
        stand = PubSubPush(once, "orders", check=None)
        with pytest.raises(ConfigurationError, match="is async"):
            stand.on()(coroutine)
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
                stand.on(shape)
        with pytest.raises(ConfigurationError, match=r"on\(lease=…\) has no effect"):
            stand.on(claim=False, lease="1s")
        with pytest.raises(ConfigurationError, match="yields"):
            stand.on()(yielding)
        with pytest.raises(ConfigurationError, match="yields"):
            AsyncPubSubPush(once.aio, "orders", check=None).on()(yielding_async)
        stand.on()(plain)
        with pytest.raises(ConfigurationError, match="takes every message"):
            stand.on({"order"})


@pytest.mark.fault("F47")
def test_a_window_shorter_than_the_broker_tries_is_warned_about() -> None:
    with Once("memory://") as once, pytest.warns(OncewardWarning, match="retry span"):
        PubSubPush(once, "orders", check=None, window="1h")
    with Once("memory://", window="30d") as once:
        policy = PubSubPush(once, "orders", check=None)._rejecting.face.policy
        assert (policy.window.length, policy.on_running) == (30 * 86_400_000_000, "raise")


def test_the_words_of_the_client_hold_before_those_of_the_endpoint() -> None:
    with Once("memory://", reasons={"executed": "new", "done": "seen"}) as once:
        endpoint = PubSubPush(once, "orders", check=None)
        endpoint.on()(lambda message: None)
        assert [json.loads(endpoint.respond(push({})).body)["reason"] for _ in range(2)] == ["new", "seen"]
