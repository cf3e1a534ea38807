"""A parked key that is resolved is kept for the window of its work, whatever kind of work it is."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from onceward import Once, applied
from onceward.administration.actions import Action, ActionRefused, plan
from onceward.errors import ConfigurationError
from onceward.http.push import InboundRequest, PubSubPush
from onceward.http.wsgi import IdempotencyMiddleware
from onceward.protocol.duration import microseconds
from onceward.protocol.policy import Policy
from onceward.protocol.ports import Filter
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Resolve
from onceward.protocol.window import parse_window, recorded_window
from onceward.results import AesGcm
from onceward.runtime.threads import run
from onceward.stores.memory import MemoryStore
from onceward.testing import FakeClock

WINDOW = "9d"
SETTINGS: Any = {"window": WINDOW, "after_crash": "park"}


class Shop:
    """One client, and several ways to call work that times out."""

    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.once = Once(MemoryStore(clock=self.clock), app="shop", **options)
        self.calls = 0

    def work(self, _: object = None) -> None:
        self.calls += 1
        raise TimeoutError

    def run(self) -> None:
        self.once.using(**SETTINGS).run("k", self.work)

    def block(self) -> None:
        with self.once.claim("k", **SETTINGS):
            self.work()

    def function(self) -> None:
        self.once(key="k", name="pay", **SETTINGS)(self.work)()

    def push(self) -> None:
        push = PubSubPush(self.once, "orders", check=None, **SETTINGS)
        push.on({"n"})(self.work)
        data = base64.b64encode(b'{"n": 1}').decode()
        body = {"message": {"messageId": "m", "data": data, "publishTime": "2026-01-01T00:00:00Z"}, "subscription": "s"}
        push.respond(InboundRequest("POST", {}, json.dumps(body).encode()))

    def http(self) -> str:
        """Send a request. Return its status."""
        statuses: list[str] = []

        def app(environ: Any, start_response: Any) -> Any:
            return self.work()

        guarded = IdempotencyMiddleware(app, self.once, principal=lambda _: "ann", required=["/"], **SETTINGS)
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": '"k"', "HTTP_HOST": "a"}
        request: Any = {**environ, "wsgi.input": io.BytesIO(), "wsgi.errors": io.StringIO()}

        def start_response(status: str, *_: Any) -> Any:
            statuses.append(status)

        list(guarded(request, start_response))
        return statuses[0]


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.once.close()


def parked_record(shop: Shop) -> Record:
    [record] = run(shop.once.store.scan(Filter(states=(RecordState.PARKED,)), cursor=None, limit=9, timeout=5)).records
    return record


KINDS = [Shop.run, Shop.block, Shop.function, Shop.push, Shop.http]


@pytest.mark.finding("N15")
@pytest.mark.parametrize("call", KINDS, ids=lambda call: call.__name__)
def test_a_resolved_record_is_valid_for_the_window_of_its_work(shop: Shop, call: Callable[[Shop], None]) -> None:
    with suppress(TimeoutError):
        call(shop)
    request = plan(Action(verb="resolve", finding="applied"), parked_record(shop), shop.clock.now())
    assert isinstance(request, Resolve)
    run(shop.once.store.settle([request], timeout=5))
    resolved = run(shop.once.store.read([request.id], timeout=5))[0].record
    assert resolved is not None
    assert resolved.valid_until == shop.clock.now() + microseconds(WINDOW)


@pytest.mark.finding("N15")
def test_resolve_in_python_uses_that_window_too(shop: Shop) -> None:
    with suppress(TimeoutError):
        shop.run()
    shop.once.resolve("k", applied(None))
    shop.clock.advance("8d")
    shop.run()  # the stored result
    assert shop.calls == 1


@pytest.mark.finding("N15")
def test_a_request_cannot_be_resolved_with_a_result_because_its_client_expects_a_response(shop: Shop) -> None:
    with suppress(TimeoutError):
        shop.http()
    record = parked_record(shop)
    with pytest.raises(ActionRefused, match="it is an HTTP request"):
        plan(Action(verb="resolve", finding="applied", result={"order": 7}), record, shop.clock.now())
    with pytest.raises(ConfigurationError, match="it is an HTTP request"):
        shop.once.using(tenant="ann").resolve("k", applied({"order": 7}), name="http")
    shop.once.using(tenant="ann").resolve("k", applied(), name="http")
    assert shop.http() == "410 Gone"


@pytest.mark.finding("N15")
def test_an_encrypted_request_that_was_resolved_is_gone() -> None:
    shop = Shop(cipher=AesGcm(b"k" * 32))
    with shop.once:
        with suppress(TimeoutError):
            shop.http()
        shop.once.using(tenant="ann").resolve("k", applied(), name="http")
        assert shop.http() == "410 Gone"


def test_work_that_cannot_be_parked_notes_no_window(shop: Shop) -> None:
    shop.once.using(window=WINDOW).run("k", int)
    [record] = run(shop.once.store.scan(Filter(), cursor=None, limit=9, timeout=5)).records
    assert record.note == {}
    assert Policy(window=parse_window(WINDOW), max_attempts=3).window_note, "its attempts may be used up"


@pytest.mark.finding("N15")
@pytest.mark.parametrize("window", ["1w1d12h", "1d12h30m", "25h1m30s", "90.5s", "1.234ms", "24h"])
def test_a_resolved_record_is_valid_for_exactly_its_window(shop: Shop, window: str) -> None:
    with suppress(TimeoutError):
        shop.once.using(window=window, after_crash="park").run("k", shop.work)
    shop.once.resolve("k", applied(None))
    entry = shop.once.read("k")
    assert entry is not None
    assert entry.record.valid_until == shop.clock.now() + microseconds(window)


@pytest.mark.finding("N15")
def test_the_window_of_an_earlier_deployment_does_not_apply(shop: Shop) -> None:
    with suppress(TimeoutError), shop.once.claim("k", window="1h", max_attempts=3):
        shop.work()
    with shop.once.claim("k", window="7d"):
        entry = shop.once.read("k")
    assert entry is not None
    assert recorded_window(entry.record) is None, "the one hour of the first attempt"


@pytest.mark.finding("N15")
def test_the_window_of_the_latest_deployment_applies(shop: Shop) -> None:
    with suppress(TimeoutError):
        shop.once.using(window="9d", after_crash="park", not_applied=TimeoutError).run("k", shop.work)
    with suppress(TimeoutError):
        shop.once.using(after_crash="park").run("k", shop.work)
    request = plan(Action(verb="resolve", finding="applied"), parked_record(shop), shop.clock.now())
    assert isinstance(request, Resolve)
    assert request.validity == parse_window("24h").validity(shop.clock.now())
