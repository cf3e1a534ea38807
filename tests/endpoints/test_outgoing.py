"""Outgoing calls: a request has the same key on every attempt; every other request has a different key."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from onceward import ConfigurationError, OncewardWarning
from onceward.errors import ClaimError, Reentrant
from onceward.http.client_keys import IdempotencyKeys, step
from onceward.http.push import PushMessage
from onceward.sagas import Step, StepContext
from onceward.testing import FakeClock, disabled
from tests.clients import Backend, SyncClient, make_backend
from tests.endpoints.helpers import pubsub_of, push

URL = "https://api.example/charges"


@pytest.fixture(params=["memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Backend:
    """One store: these tests do not depend on it, and test_push.py covers both."""
    return make_backend(request, tmp_path, clock)


class Remote:
    """A payment API: it remembers what it did under a key; the test plans its answers."""

    def __init__(self) -> None:
        self.keys: list[str | None] = []
        self.charged: dict[str | None, bytes] = {}
        self.answers: list[int | Exception] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        key = request.headers.get("Idempotency-Key")
        self.keys.append(key)
        answer = self.answers.pop(0) if self.answers else 200
        self.charged.setdefault(key, request.content)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer)


@pytest.fixture
def remote() -> Remote:
    return Remote()


def http_client(remote: Remote, **choices: Any) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(remote), auth=IdempotencyKeys(**choices))


@pytest.mark.mission("C8")
def test_every_attempt_of_a_charge_has_the_same_key(client: SyncClient, remote: Remote) -> None:
    """The reply is lost after the charge; the next delivery asks again with the same key and is not charged."""
    remote.answers = [httpx.ReadTimeout("lost"), 503, 200]

    @client(key="order:{order}")
    def pay(order: int) -> int:
        with http_client(remote) as http:
            return http.post(URL, json={"order": order}).raise_for_status().status_code

    for raised in (httpx.ReadTimeout, httpx.HTTPStatusError):
        with pytest.raises(raised):
            pay(7)
    assert [pay(7), pay(7)] == [200, 200]
    assert len(remote.keys) == 3
    assert len(remote.charged) == 1
    pay(8)
    assert len(remote.charged) == 2, "another order is another charge"


@pytest.mark.mission("C8")
def test_several_requests_of_one_piece_of_work_have_keys_of_their_own_on_every_attempt(
    client: SyncClient, remote: Remote
) -> None:
    attempts: list[list[str | None]] = []

    @client(key="order:{order}")
    def ship(order: int) -> None:
        remote.keys = []
        attempts.append(remote.keys)
        with http_client(remote) as http:
            http.post(URL, json={"n": 1})
            http.post(URL, json={"n": 2})
            http.put(URL, json={"n": 1})
            http.post(f"{URL}?test=1", json={"n": 1})
            http.delete(f"{URL}/1")
            http.patch(f"{URL}/1")
        if len(attempts) < 3:
            raise RuntimeError("crashed")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            ship(7)
    ship(7)
    assert attempts[0] == attempts[1] == attempts[2]
    assert len(set(attempts[0])) == 6


@pytest.mark.mission("C8")
def test_the_order_counts_only_among_requests_to_the_same_url(client: SyncClient, remote: Remote) -> None:
    attempts: list[dict[str, str | None]] = []

    @client(key="order:{order}")
    def ship(order: int) -> None:
        sent: dict[str, str | None] = {}
        attempts.append(sent)
        with http_client(remote) as http:
            for name in ("a", "b") if len(attempts) == 1 else ("b", "a"):
                http.post(f"{URL}/{name}")
                sent[name] = remote.keys[-1]
        if len(attempts) == 1:
            raise RuntimeError("crashed")

    with pytest.raises(RuntimeError):
        ship(7)
    ship(7)
    assert attempts[0] == attempts[1]


@pytest.mark.mission("C8", "E1")
def test_a_pushed_message_is_charged_once_however_often_it_is_delivered(client: SyncClient, remote: Remote) -> None:
    remote.answers = [httpx.ReadTimeout("lost"), 502, 200]
    endpoint = pubsub_of(client)

    @endpoint.on({"order"})
    def pay(message: PushMessage[Any]) -> None:
        with http_client(remote) as http:
            http.post(URL, json=message.payload).raise_for_status()

    assert [endpoint.send(push({"order": 7})).status for _ in range(5)] == [500, 500, 200, 200, 200]
    assert len(remote.keys) == 3
    assert len(remote.charged) == 1


def test_safe_requests_have_no_key_and_a_key_of_your_own_is_kept(client: SyncClient, remote: Remote) -> None:
    with client.claim("order:7"), http_client(remote) as http:
        http.get(URL)
        http.head(URL)
        http.options(URL)
        http.post(URL, headers={"idempotency-key": "mine"})
    assert remote.keys == [None, None, None, "mine"]


@pytest.mark.parametrize("failure", [500, 503, 429, 409, 408, 425, httpx.ConnectError("down")])
def test_a_retry_inside_an_attempt_has_the_same_key(
    client: SyncClient, remote: Remote, failure: int | Exception
) -> None:
    """A retry loop inside the handler must not become a second charge."""
    remote.answers = [failure, failure, 200, 200]
    with client.claim("order:7"), http_client(remote) as http:
        for _ in range(3):
            with contextlib.suppress(httpx.ConnectError):
                http.post(URL, json={"n": 1})
        assert len(set(remote.keys)) == 1
        http.post(URL, json={"n": 1})
    assert len(set(remote.keys)) == 2, "after an answer, the next request is a new charge, whatever its body"


@pytest.mark.parametrize("refused", [400, 402, 404, 422])
def test_a_refusal_is_an_answer(client: SyncClient, remote: Remote, refused: int) -> None:
    remote.answers = [refused, 200]
    with client.claim("order:7"), http_client(remote) as http:
        http.post(URL, json={"card": 1})
        http.post(URL, json={"card": 2})
    assert len(set(remote.keys)) == 2


def test_whether_it_is_a_retry_or_another_request_must_be_clear(client: SyncClient, remote: Remote) -> None:
    remote.answers = [500, 200]
    with client.claim("order:7"), http_client(remote) as http:
        http.post(URL, json={"n": 1})
        with pytest.raises(ConfigurationError, match=r"a retry, or a new request.*name the step"):
            http.post(URL, json={"n": 2})
        with step("second"):
            http.post(URL, json={"n": 2})
    assert len(remote.keys) == 2


def test_a_stream_cannot_be_compared_so_its_retry_needs_a_name(client: SyncClient, remote: Remote) -> None:
    remote.answers = [500]
    with client.claim("order:7"), http_client(remote) as http:
        http.post(URL, content=iter([b"a", b"b"]))
        with pytest.raises(ConfigurationError, match="name the step"):
            http.post(URL, content=iter([b"a", b"b"]))


async def test_two_concurrent_requests_need_names(remote: Remote) -> None:
    import asyncio

    from onceward import AsyncOnce

    arrived, go = asyncio.Event(), asyncio.Event()

    async def slow(request: httpx.Request) -> httpx.Response:
        remote.keys.append(request.headers["idempotency-key"])
        arrived.set()
        await go.wait()
        return httpx.Response(200)

    async with AsyncOnce("memory://") as once:
        transport = httpx.MockTransport(slow)
        async with once.claim("order:7"), httpx.AsyncClient(transport=transport, auth=IdempotencyKeys()) as http:
            first = asyncio.create_task(http.post(URL, json={"n": 1}))
            await arrived.wait()
            with pytest.raises(Reentrant, match="in flight"):
                await http.post(URL, json={"n": 2})
            go.set()
            await first

            async def named(name: str) -> None:
                with step(name):
                    await http.post(URL, json={"n": name})

            await asyncio.gather(named("a"), named("b"), named("c"))
    assert len(set(remote.keys)) == 4


@pytest.mark.mission("C8")
def test_a_named_step_has_the_key_that_the_claim_derives_for_it(client: SyncClient, remote: Remote) -> None:
    with client.claim("order:7") as claim, http_client(remote) as http:
        for body in ({"at": 1}, {"at": 2}):
            with step("charge"):
                http.post(URL, json=body)
        with step("refund"):
            http.post(URL, json={})
            with pytest.raises(ConfigurationError, match=r"refund.*both would have one key"):
                http.post(f"{URL}/2", json={})
        assert remote.keys == [claim.derived_key("charge")] * 2 + [claim.derived_key("refund")]
    for name in ("", 7):
        anything: Any = name
        with pytest.raises(ConfigurationError), step(anything):
            pass


def test_outside_of_a_claim_nothing_is_sent(remote: Remote) -> None:
    with http_client(remote) as http:
        with pytest.raises(ClaimError, match="outside a claim") as raised:
            http.post(f"{URL}?token=secret")
        assert "secret" not in str(raised.value)
        http.get(URL)
    assert remote.keys == [None]


def test_outside_of_a_claim_it_is_sent_with_a_warning_if_you_say_so(remote: Remote) -> None:
    with http_client(remote, outside="warn") as http, pytest.warns(OncewardWarning, match="outside a claim"):
        http.post(URL)
    assert remote.keys == [None]


def test_the_header_is_what_the_remote_calls_it(client: SyncClient) -> None:
    seen: list[httpx.Headers] = []

    def remember(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(200)

    auth = IdempotencyKeys(header="PayPal-Request-Id", quoted=True)
    with client.claim("order:7") as claim, httpx.Client(transport=httpx.MockTransport(remember), auth=auth) as http:
        with step("charge"):
            http.post(URL)
        assert seen[0]["paypal-request-id"] == f'"{claim.derived_key("charge")}"'


@pytest.mark.parametrize("make", [lambda: httpx.BasicAuth("u", "p"), lambda: httpx.DigestAuth("u", "p")])
def test_another_auth_goes_along(client: SyncClient, make: Callable[[], httpx.Auth]) -> None:
    keys: list[str] = []

    def guarded(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if "authorization" in request.headers:
            return httpx.Response(200)
        return httpx.Response(401, headers={"www-authenticate": 'Digest realm="r", nonce="n", qop="auth"'})

    auth = IdempotencyKeys(auth=make())
    with client.claim("order:7"), httpx.Client(transport=httpx.MockTransport(guarded), auth=auth) as http:
        assert http.post(URL).status_code == 200
        assert len(set(keys)) == 1
        assert http.post(URL).status_code == 200
    assert len(set(keys)) == 2
    for wrong in (httpx.Auth(), "basic"):
        anything: Any = wrong
        with pytest.raises(ConfigurationError, match="auth_flow"):
            IdempotencyKeys(auth=anything)
    with pytest.raises(ConfigurationError, match="outside"):
        IdempotencyKeys(outside="quietly")  # type: ignore[arg-type]  # that is the point


def test_a_request_that_was_challenged_and_then_lost_is_sent_once_more(client: SyncClient) -> None:
    keys: list[str] = []

    def guarded(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) == 2:
            raise httpx.ReadTimeout("lost")
        if "authorization" in request.headers:
            return httpx.Response(200)
        return httpx.Response(401, headers={"www-authenticate": 'Digest realm="r", nonce="n", qop="auth"'})

    auth = IdempotencyKeys(auth=httpx.DigestAuth("u", "p"))
    with client.claim("order:7"), httpx.Client(transport=httpx.MockTransport(guarded), auth=auth) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.post(URL)
        assert http.post(URL).status_code == 200
    assert len(set(keys)) == 1


def test_a_redirect_keeps_the_key(client: SyncClient) -> None:
    keys: list[str] = []

    def moved(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        return httpx.Response(307, headers={"location": f"{URL}/new"}) if len(keys) == 1 else httpx.Response(200)

    auth = IdempotencyKeys()
    transport = httpx.MockTransport(moved)
    with client.claim("order:7"), httpx.Client(transport=transport, auth=auth, follow_redirects=True) as http:
        http.post(URL)
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_in_test_mode_requests_have_keys_too(client: SyncClient, remote: Remote) -> None:
    @client(key="order:{order}")
    def pay(order: int) -> None:
        with http_client(remote) as http:
            http.post(URL)

    with disabled():
        pay(7)
    assert remote.keys[0] is not None


def test_after_the_window_tomorrows_charge_is_not_yesterdays_replay(client: SyncClient, remote: Remote) -> None:
    @client(key="rent:{flat}", window="24h")
    def rent(flat: int) -> None:
        with http_client(remote) as http:
            http.post(URL, json={"flat": flat})

    rent(1)
    client.clock.advance("25h")
    rent(1)
    assert len(remote.charged) == 2


# ── in the steps of a saga ──


class Shop:
    """A saga whose steps all post to the same URL. `trouble` is raised behind the post of that step, in turn; a
    KeyboardInterrupt before it."""

    def __init__(self, client: SyncClient, remote: Remote) -> None:
        self.client = client
        self.remote = remote
        self.trouble: dict[str, list[BaseException]] = {}

    def act(self, name: str) -> Callable[[StepContext], None]:
        def act(_step: StepContext) -> None:
            trouble = self.trouble[name].pop(0) if self.trouble.get(name) else None
            if isinstance(trouble, KeyboardInterrupt):
                raise trouble
            with http_client(self.remote) as http:
                http.post(URL, json=name).raise_for_status()
            if trouble is not None:
                raise trouble

        return self.client.work(act)

    def order(self, client: SyncClient | None = None) -> Any:
        steps = (
            Step("charge", self.act("charge"), undo=self.act("undo charge"), retry_delay=0),
            Step("ship", self.act("ship"), undo=self.act("undo ship"), retry_delay=0, final=ValueError),
        )
        return (client or self.client).once.saga("order", *steps, key="order:{number}")

    def charged(self) -> list[str]:
        return [json.loads(body) for body in self.remote.charged.values()]


def test_a_step_that_is_done_again_posts_under_the_key_that_it_had(client: SyncClient, remote: Remote) -> None:
    shop = Shop(client, remote)
    shop.trouble["charge"] = [RuntimeError("behind the charge")]
    client.wait(shop.order()(number=1))
    assert len(remote.keys) == 3
    assert shop.charged() == ["charge", "ship"], "charged once"


def test_another_worker_resumes_and_its_first_post_is_not_taken_for_an_earlier_steps(
    client: SyncClient, remote: Remote
) -> None:
    shop = Shop(client, remote)
    shop.trouble["ship"] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        client.wait(shop.order()(number=1))
    other = client.another()
    other.wait(shop.order(other)(number=1))
    assert shop.charged() == ["charge", "ship"], "each once, under its own key"


def test_an_undo_posts_under_a_key_of_its_own_and_a_saga_that_begins_anew_charges_anew(
    client: SyncClient, remote: Remote
) -> None:
    shop = Shop(client, remote)
    order = shop.order()
    shop.trouble["ship"] = [ValueError("no such address")]
    with pytest.raises(ValueError, match="no such address"):
        client.wait(order(number=1))
    assert shop.charged() == ["charge", "ship", "undo charge"]
    client.wait(order.retry(number=1))
    client.wait(order(number=1))
    assert shop.charged() == ["charge", "ship", "undo charge", "charge", "ship"]


def test_a_named_request_belongs_to_its_step_of_the_saga(client: SyncClient, remote: Remote) -> None:
    def act(_step: StepContext) -> None:
        with http_client(remote) as http, step("pay"):
            http.post(URL)

    steps = [Step(name, client.work(act), kind="retriable") for name in ("deposit", "rest")]
    client.wait(client.once.saga("order", *steps, key="order:{number}")(number=1))
    assert len(set(remote.keys)) == 2


def test_without_httpx_the_extra_is_named() -> None:
    code = "import sys; sys.modules['httpx'] = None; import onceward.http.client_keys"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MissingExtra: outgoing calls need httpx" in run.stderr
    assert 'pip install "onceward[httpx]"' in run.stderr
