"""Webhooks: signed by the senders' own packages where they exist; verified first, then claimed, then run."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import stripe as stripe_package
from slack_sdk.signature import SignatureVerifier
from standardwebhooks.webhooks import Webhook as StandardWebhook

from onceward import (
    ConfigurationError,
    InvalidKey,
    MissingKey,
    Once,
    OncewardWarning,
    PayloadMismatch,
    RecordState,
    calendar,
    forever,
    lasting,
    sliding,
)
from onceward.http.webhooks import (
    InboundRequest,
    Response,
    Scheme,
    Webhook,
    WebhookEvent,
    github,
    shopify,
    signed,
    slack,
    standard,
    stripe,
)
from onceward.testing import FakeClock
from tests.clients import Backend, SyncClient, make_backend
from tests.endpoints.helpers import BlockingEndpoint, webhook_of

SECRET = "the secret"
STANDARD_SECRET = "whsec_" + base64.b64encode(b"a secret of twenty-four b").decode()
APPLIED = (200, {"applied": True, "reason": "executed"})
REPLAYED = (200, {"applied": False, "reason": "replayed"})


@pytest.fixture(params=["memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    """One store: these tests do not depend on it, and test_push.py covers both."""
    return make_backend(request, tmp_path, clock)


def mac(body: bytes, secret: str = SECRET) -> bytes:
    return hmac.new(secret.encode(), body, hashlib.sha256).digest()


def by_stripe(body: bytes, *, id: str = "evt_1", at: float | None = None, secret: str = SECRET) -> InboundRequest:
    """Sign as the sender's own package does."""
    timestamp = int(time.time() if at is None else at)
    signature = stripe_package.WebhookSignature._compute_signature(f"{timestamp}.{body.decode()}", secret)
    return InboundRequest("POST", {"Stripe-Signature": f"t={timestamp},v0=old,v1={signature}"}, body)


def by_slack(body: bytes, *, id: str = "", at: float | None = None, secret: str = SECRET) -> InboundRequest:
    timestamp = str(int(time.time() if at is None else at))
    signature = SignatureVerifier(secret).generate_signature(timestamp=timestamp, body=body)
    assert signature is not None
    headers = {"X-Slack-Request-Timestamp": timestamp, "X-Slack-Signature": signature}
    return InboundRequest("POST", {**headers, "Content-Type": "application/json"}, body)


def by_standard(
    body: bytes, *, id: str = "msg_1", at: float | None = None, secret: str = STANDARD_SECRET
) -> InboundRequest:
    moment = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    signature = StandardWebhook(secret).sign(id, moment, body.decode())
    headers = {"webhook-id": id, "webhook-timestamp": str(int(moment.timestamp())), "webhook-signature": signature}
    return InboundRequest("POST", headers, body)


def by_github(body: bytes, *, id: str = "72d3162e", secret: str = SECRET, at: float = 0) -> InboundRequest:
    headers = {"X-GitHub-Delivery": id, "X-GitHub-Event": "push"}
    return InboundRequest("POST", {**headers, "X-Hub-Signature-256": f"sha256={mac(body, secret).hex()}"}, body)


def by_shopify(body: bytes, *, id: str = "98880550", secret: str = SECRET, at: float = 0) -> InboundRequest:
    headers = {"X-Shopify-Topic": "orders/create", "X-Shopify-Event-Id": id}
    return InboundRequest(
        "POST", {**headers, "X-Shopify-Hmac-Sha256": base64.b64encode(mac(body, secret)).decode()}, body
    )


SENDERS: dict[str, tuple[Any, Any, bytes, Any, str]] = {
    "stripe": (stripe(SECRET), by_stripe, b'{"id": "evt_1", "type": "invoice.paid", "n": 1}', "evt_1", "invoice.paid"),
    "slack": (slack(SECRET), by_slack, b'{"event_id": "Ev1", "event": {"type": "message"}}', "Ev1", "message"),
    "standard": (standard(STANDARD_SECRET), by_standard, b'{"type": "user.created"}', "msg_1", "user.created"),
    "github": (github(SECRET), by_github, b'{"ref": "main"}', "72d3162e", "push"),
    "shopify": (shopify(SECRET), by_shopify, b'{"id": 7}', ("orders/create", "98880550"), "orders/create"),
}

senders = pytest.mark.parametrize("sender", list(SENDERS))


def endpoint_of(client: SyncClient, sender: str, **details: Any) -> tuple[BlockingEndpoint, list[WebhookEvent]]:
    seen: list[WebhookEvent] = []
    return webhook_of(client, SENDERS[sender][0], seen.append, **details), seen


@senders
@pytest.mark.mission("B6")
def test_an_event_that_its_sender_signed_runs_once(client: SyncClient, sender: str) -> None:
    endpoint, seen = endpoint_of(client, sender)
    _, sign, body, id, kind = SENDERS[sender]
    assert [endpoint.post(sign(body)) for _ in range(3)] == [APPLIED, REPLAYED, REPLAYED]
    [event] = seen
    assert (event.id, event.type, event.body, event.json()) == (id, kind, body, json.loads(body))
    assert client.read(id, name=f"webhook:{sender}").state is RecordState.COMPLETED


@senders
def test_a_wrong_signature_never_touches_the_store(client: SyncClient, sender: str) -> None:
    endpoint, seen = endpoint_of(client, sender)
    _, sign, body, _, _ = SENDERS[sender]
    other = "whsec_" + base64.b64encode(b"another secret of theirs").decode() if sender == "standard" else "other"
    good = sign(body)
    forged = [
        sign(body, secret=other),
        InboundRequest("POST", good.headers(), body + b" "),
        InboundRequest("POST", good.headers(), body.replace(b"{", b"{ ", 1)),
        InboundRequest("POST", {}, body),
        InboundRequest("POST", {name: value.upper() for name, value in good.headers().items()}, body),
        InboundRequest("POST", dict.fromkeys(good.headers(), ""), body),
        InboundRequest("POST", {name: value + "é" for name, value in good.headers().items()}, body),
        InboundRequest("POST", {name: value[:-1] for name, value in good.headers().items()}, body),
    ]
    with client.store_trouble("claim") as asked:
        answers = [endpoint.send(request) for request in forged]
    assert [answer.status for answer in answers] == [403] * len(forged)
    assert (asked, seen) == ([], [])
    assert {event.reason for event in client.events_named("rejected")} <= {
        "bad_signature",
        "missing_signature",
        "stale_timestamp",
    }
    assert client.once.counts["rejected"] == len(forged)
    assert endpoint.post(good) == APPLIED


@pytest.mark.parametrize("sender", ["stripe", "slack", "standard"])
def test_a_signature_counts_for_five_minutes_in_both_directions(client: SyncClient, sender: str) -> None:
    now = 1_800_000_000.0
    endpoint, seen = endpoint_of(client, sender, clock=lambda: now)
    _, sign, body, _, _ = SENDERS[sender]
    for age in (-301, 301, 86_400, -(10**9)):
        status, problem = endpoint.post(sign(body, at=now - age))
        assert (status, problem["code"]) == (403, "stale_timestamp")
    assert seen == []
    assert endpoint.post(sign(body, at=now - 300)) == APPLIED
    assert endpoint.post(sign(body, at=now + 300)) == REPLAYED


@senders
def test_while_one_secret_replaces_another_both_hold(client: SyncClient, sender: str) -> None:
    _, sign, body, _, _ = SENDERS[sender]
    new = "whsec_" + base64.b64encode(b"the next secret of theirs").decode() if sender == "standard" else "the next"
    make: dict[str, Any] = {
        "stripe": stripe, "slack": slack, "standard": standard, "github": github, "shopify": shopify
    }  # fmt: skip
    old = STANDARD_SECRET if sender == "standard" else SECRET
    seen: list[WebhookEvent] = []
    endpoint = webhook_of(client, make[sender](new, old), seen.append)
    assert endpoint.post(sign(body, secret=old)) == APPLIED
    assert endpoint.post(sign(body, secret=new)) == REPLAYED


def test_the_packages_of_the_senders_accept_what_we_accept() -> None:
    """Their own verification and ours agree on the same request."""
    body = SENDERS["stripe"][2]
    request = by_stripe(body)
    assert stripe(SECRET).rejection_reason(request, time.time()) is None
    assert stripe_package.WebhookSignature.verify_header(body.decode(), request.header("stripe-signature"), SECRET, 300)
    request = by_standard(body)
    StandardWebhook(STANDARD_SECRET).verify(body, request.headers())
    request = by_slack(body)
    assert SignatureVerifier(SECRET).is_valid_request(body, request.headers())


def test_another_version_of_a_signature_is_not_taken_for_the_known_one() -> None:
    body, now = SENDERS["slack"][2], time.time()
    for sign, scheme, header, known in (
        (by_slack, slack(SECRET), "x-slack-signature", "v0="),
        (by_github, github(SECRET), "x-hub-signature-256", "sha256="),
    ):
        good = sign(body)
        assert scheme.rejection_reason(good, now) is None
        for other in ("v9=", "sha999=", ""):
            forged = {**good.headers(), header: good.header(header).replace(known, other)}
            assert scheme.rejection_reason(InboundRequest("POST", forged, body), now) == "missing_signature"


def test_the_vectors_that_senders_publish() -> None:
    hello = InboundRequest(
        "POST",
        {"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
        b"Hello, World!",
    )
    assert github("It's a Secret to Everybody").rejection_reason(hello, 0) is None
    assert github("It's a secret to Everybody").rejection_reason(hello, 0) == "bad_signature"


def test_a_retry_of_stripe_differs_in_its_body_and_is_the_same_event(client: SyncClient) -> None:
    endpoint, seen = endpoint_of(client, "stripe")
    assert endpoint.post(by_stripe(b'{"id": "evt_1", "pending_webhooks": 2}')) == APPLIED
    assert endpoint.post(by_stripe(b'{"id": "evt_1", "pending_webhooks": 1}')) == REPLAYED
    assert len(seen) == 1


@pytest.mark.fault("F18")
@pytest.mark.parametrize("sender", ["github", "shopify", "standard"])
def test_an_id_with_another_body_is_a_mismatch(client: SyncClient, sender: str) -> None:
    endpoint, seen = endpoint_of(client, sender)
    _, sign, body, _, _ = SENDERS[sender]
    endpoint.post(sign(body))
    status, problem = endpoint.post(sign(b'{"another": "body"}'))
    assert (status, problem["code"]) == (422, "mismatch")
    assert len(seen) == 1


def test_an_event_without_an_id_is_a_bad_request(client: SyncClient) -> None:
    endpoint, seen = endpoint_of(client, "stripe")
    for body in (b'{"type": "no id"}', b'{"id": ""}', b'{"id": 7}', b"not json", b"[]", b"[" * 100_000):
        with client.store_trouble("claim") as asked:
            status, problem = endpoint.post(by_stripe(body))
        assert (status, problem["code"], asked, seen) == (400, "no_event_id", [], [])


def test_headers_that_must_name_the_event(client: SyncClient) -> None:
    for sender in ("github", "shopify"):
        endpoint, _ = endpoint_of(client, sender)
        assert endpoint.post(SENDERS[sender][1](b"{}", id=""))[0] == 400


def test_slack_is_answered_when_it_asks_whether_we_are_there(client: SyncClient) -> None:
    endpoint, seen = endpoint_of(client, "slack")
    body = b'{"type": "url_verification", "challenge": "3eZbrw1a"}'
    with client.store_trouble("claim") as asked:
        assert endpoint.post(by_slack(body)) == (200, {"challenge": "3eZbrw1a"})
        assert endpoint.send(by_slack(body, secret="forged")).status == 403
    assert (asked, seen) == ([], [])


@pytest.mark.parametrize(
    ("body", "id", "kind"),
    [
        (b"command=%2Fweather&trigger_id=13345.7&text=94070", "13345.7", "/weather"),
        (b"payload=%7B%22type%22%3A%22block_actions%22%2C%22trigger_id%22%3A%2212.3%22%7D", "12.3", "block_actions"),
    ],
)
def test_commands_and_clicks_of_slack_are_forms(client: SyncClient, body: bytes, id: str, kind: str) -> None:
    endpoint, seen = endpoint_of(client, "slack")
    good = by_slack(body)
    request = InboundRequest("POST", {**good.headers(), "content-type": "application/x-www-form-urlencoded"}, body)
    assert [endpoint.post(request) for _ in range(2)] == [APPLIED, REPLAYED]
    assert [(event.id, event.type) for event in seen] == [(id, kind)]


def test_a_form_of_slack_with_too_many_fields_is_refused_before_it_is_parsed(client: SyncClient) -> None:
    endpoint, seen = endpoint_of(client, "slack")
    body = b"command=%2Fweather&trigger_id=13345.7" + b"&a=1" * 1_000
    good = by_slack(body)
    request = InboundRequest("POST", {**good.headers(), "content-type": "application/x-www-form-urlencoded"}, body)
    assert endpoint.post(request)[0] == 400
    assert not seen


def test_one_event_of_shopify_under_two_topics_is_two_pieces_of_work(client: SyncClient) -> None:
    endpoint, seen = endpoint_of(client, "shopify")
    request = by_shopify(b"{}")
    other = InboundRequest("POST", {**request.headers(), "x-shopify-topic": "orders/paid"}, b"{}")
    assert [endpoint.post(one) for one in (request, other, other)] == [APPLIED, APPLIED, REPLAYED]
    assert len(seen) == 2


@pytest.mark.mission("B6")
def test_a_scheme_and_an_id_of_your_own(client: SyncClient) -> None:
    """A composite business key: only the body is signed, so the id is best taken from the body."""
    scheme = signed(
        SECRET, name="partner", header="X-Sign", prefix="v2:", encoding="base64", digest="sha512",
        timestamp="X-Time", before="{timestamp}|", event_id="X-Id", event_type="X-Type",
    )  # fmt: skip
    seen: list[WebhookEvent] = []
    endpoint = webhook_of(
        client,
        scheme,
        seen.append,
        name="partner",
        event_id=lambda r: (json.loads(r.body)["shop"], json.loads(r.body)["n"]),
    )
    body, now = b'{"shop": "a", "n": 7}', str(int(time.time()))
    value = base64.b64encode(hmac.new(SECRET.encode(), now.encode() + b"|" + body, "sha512").digest()).decode()
    headers = {"x-sign": f"v2:{value}", "x-time": now, "x-type": "sold"}
    assert [endpoint.post(InboundRequest("POST", headers, body)) for _ in range(2)] == [APPLIED, REPLAYED]
    assert [(event.id, event.type) for event in seen] == [(("a", 7), "sold")]
    for other in (value, f"v3:{value}", "v2:", ""):
        assert endpoint.send(InboundRequest("POST", {**headers, "x-sign": other}, body)).status == 403
    assert endpoint.send(InboundRequest("POST", {**headers, "x-time": "1"}, body)).status == 403
    for nameless in (b"{}", b"not json", b"[]"):
        value = base64.b64encode(hmac.new(SECRET.encode(), now.encode() + b"|" + nameless, "sha512").digest()).decode()
        assert endpoint.send(InboundRequest("POST", {**headers, "x-sign": f"v2:{value}"}, nameless)).status == 400


def test_what_a_handler_raised_is_in_the_log_with_its_traceback_and_not_in_the_answer(
    client: SyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(event: WebhookEvent) -> Response:
        if event.id == "g1":
            raise ConnectionError(f"not {event.id}")
        return Response(503)

    endpoint = webhook_of(client, github(SECRET), handle)
    assert b"not g1" not in endpoint.send(by_github(b"{}", id="g1")).body
    assert endpoint.send(by_github(b"{}", id="g2")).status == 503  # its own answer: nothing was raised
    [record] = [one for one in caplog.records if one.name == "onceward.raised"]
    assert record.getMessage().startswith("g1: the work raised ConnectionError in\n")
    assert ", in handle" in record.getMessage()
    assert "not g1" not in caplog.text, "a message may quote what was delivered"


def test_a_handler_that_fails_is_retried_and_the_answer_of_one_that_answers_is_sent(client: SyncClient) -> None:
    tries: list[int] = []

    def handle(event: WebhookEvent) -> Response:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("not now")
        return Response.json({"text": f"thanks for {event.id}"})

    endpoint = webhook_of(client, github(SECRET), handle)
    request = by_github(b"{}", id="g1")
    assert endpoint.send(request).status == 500
    assert [endpoint.post(request) for _ in range(2)] == [(200, {"text": "thanks for g1"})] * 2
    assert len(tries) == 2


@pytest.mark.finding("N10")
@pytest.mark.parametrize("error", [InvalidKey, MissingKey, ConfigurationError, PayloadMismatch, ValueError])
def test_no_error_of_a_handler_is_acknowledged_unless_it_is_declared_final(
    client: SyncClient, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    def handle(event: WebhookEvent) -> None:
        raise error(f"no customer in {event.id}")

    endpoint = webhook_of(client, github(SECRET), handle)
    assert [endpoint.send(by_github(b"{}", id="g1")).status for _ in range(2)] == [500, 500]
    logged = [one.getMessage() for one in caplog.records if one.name == "onceward.raised"]
    assert len(logged) == (0 if error is PayloadMismatch else 2), "the event of a mismatch is logged already"
    assert all(f"the work raised {error.__qualname__} in\n" in one and ", in handle" in one for one in logged)
    declared = webhook_of(client, github(SECRET), handle, name="declared", final=error)
    assert declared.send(by_github(b"{}", id="g1")).status == 204
    assert client.read("g1", name="declared").state is RecordState.FAILED


@pytest.mark.fault("F51")
def test_if_the_record_is_not_confirmed_nothing_is_acknowledged(client: SyncClient) -> None:
    seen: list[WebhookEvent] = []
    endpoint = webhook_of(client, github(SECRET), seen.append, settle_timeout="50ms", lease="60s")
    request = by_github(b"{}", id="g1")
    with client.store_trouble("settle"):
        status, problem = endpoint.post(request)
    assert (status, problem["code"]) == (503, "unknown")
    assert endpoint.send(request).status == 409, "its lease has to expire first"
    client.clock.advance("61s")
    assert endpoint.post(request)[0] == 200


@pytest.mark.fault("F47")
def test_a_window_shorter_than_the_sender_tries_is_warned_about() -> None:
    with Once("memory://") as once, pytest.warns(OncewardWarning, match="retry span"):
        Webhook(once, stripe(SECRET), print, window="24h")


def test_what_cannot_work_is_refused_when_it_is_declared() -> None:
    for make in (stripe, github, slack, shopify, standard):
        for secrets in ((), ("",), ("good", ""), (" \n",)):
            with pytest.raises(ConfigurationError, match="secret"):
                make(*secrets)
    with pytest.raises(ConfigurationError, match="base64"):
        standard("whsec_%%%")
    with pytest.raises(ConfigurationError, match="encoding"):
        signed(SECRET, header="x", event_id="y", encoding="morse")
    with pytest.raises(ConfigurationError, match="digest"):
        signed(SECRET, header="x", event_id="y", digest="shake_128")
    anything: Any = Webhook
    with Once("memory://") as once, pytest.raises(ConfigurationError, match="not a scheme"):
        anything(once, "stripe", print)


def test_two_senders_with_schemes_of_your_own_do_not_share_their_ids_by_accident(client: SyncClient) -> None:
    """Each sender numbers its events from 1: without a prefix, their ids would collide."""
    nameless = signed(SECRET, header="x", event_id="y")
    with pytest.raises(ConfigurationError, match="name="):
        webhook_of(client, nameless, print)
    webhook_of(client, nameless, print, name="acme")
    assert (
        webhook_of(client, signed(SECRET, header="x", event_id="y", name="acme"), print).endpoint.name == "webhook:acme"
    )


@pytest.mark.parametrize("secret", ["whsec_", " ", "whsec_ "])
def test_a_secret_of_standard_webhooks_that_is_cut_off_is_refused(secret: str) -> None:
    """For example a truncated environment variable. With an empty secret, any sender could sign."""
    with pytest.raises(ConfigurationError, match="secret"):
        standard(secret)


def test_no_secret_is_shown() -> None:
    scheme: Scheme = stripe(SECRET)
    assert SECRET not in repr(scheme)
    assert SECRET not in str(scheme)


@pytest.mark.finding("N41")
@pytest.mark.parametrize("window", ["4m", "5m", "10m", lasting("4m", since="attempt"), sliding("4m"), calendar("UTC")])
def test_an_event_that_is_forgotten_while_its_signature_holds_is_refused_when_it_is_declared(window: Any) -> None:
    """Otherwise an attacker that recorded the request could replay it."""
    with Once("memory://", retry_span=None) as once:
        for scheme in (stripe(SECRET), slack(SECRET), standard(STANDARD_SECRET)):
            with pytest.raises(ConfigurationError, match="could be replayed"):
                Webhook(once, scheme, print, window=window, retry_span=None)
        if window != calendar("UTC"):  # which may end at any moment
            Webhook(once, stripe(SECRET, tolerance="1s"), print, window=window, retry_span=None)
        Webhook(once, github(SECRET), print, window=window, retry_span=None)  # its signatures have no timestamp
        Webhook(once, stripe(SECRET), print, window="601s", retry_span=None)
        Webhook(once, stripe(SECRET), print, window=forever, retry_span=None)


@pytest.mark.finding("N41")
def test_a_time_that_is_not_signed_is_refused_when_it_is_declared() -> None:
    for before in ("", "v0:", "{time}."):
        with pytest.raises(ConfigurationError, match="not signed"):
            signed(SECRET, header="x-sig", event_id="x-id", timestamp="x-time", before=before)
    with pytest.raises(ConfigurationError, match="no effect"):
        signed(SECRET, header="x-sig", event_id="x-id", before="v0:")


@pytest.mark.finding("N41")
def test_a_timestamp_too_far_in_the_future_is_refused_like_an_old_one(client: SyncClient) -> None:
    now = [1_000_000.0]
    endpoint = webhook_of(
        client,
        signed(SECRET, name="acme", header="x-sig", event_id="x-id", timestamp="x-time", tolerance="5m"),
        lambda event: None,
        clock=lambda: now[0],
    )

    def at(second: int) -> InboundRequest:
        mac = hmac.new(SECRET.encode(), b"%d.{}" % second, hashlib.sha256).hexdigest()
        return InboundRequest("POST", {"x-sig": mac, "x-id": str(second), "x-time": str(second)}, b"{}")

    assert endpoint.post(at(1_000_301))[0] == 403
    assert endpoint.post(at(999_699))[0] == 403
    assert endpoint.post(at(1_000_300)) == endpoint.post(at(999_700)) == APPLIED
