"""The middleware while work is running or its process stops: ASGI on `AsyncOnce`, WSGI on `Once`."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from onceward import current_async_claim, current_claim
from onceward.testing import disabled
from tests.http.conftest import MakeSite
from tests.sites import Answer, Asked, Site, WsgiSite

TOO_LONG = 60


class Slow:
    """A handler that waits in the middle of its work."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self, asked: Asked) -> Answer:
        self.begun.set()
        assert self.go.wait(TOO_LONG)
        return 201, [], b"slow"


@pytest.mark.finding("N27")
@pytest.mark.parametrize("retry_after", [None, "1h", "2s"])
def test_retry_after_is_the_rest_of_the_lease_or_a_shorter_limit(make_site: MakeSite, retry_after: str | None) -> None:
    slow = Slow()
    site = make_site(slow, lease="10m", retry_after=retry_after)
    first = site.meanwhile()
    assert slow.begun.wait(TOO_LONG)
    seconds = int(site.ask().header("retry-after") or 0)
    assert seconds == 2 if retry_after == "2s" else 500 < seconds <= 600
    slow.go.set()
    assert first.result(TOO_LONG).status == 201


@pytest.mark.fault("F78")
def test_while_it_is_running_a_duplicate_is_a_409_with_retry_after(make_site: MakeSite) -> None:
    slow = Slow()
    site = make_site(slow, retry_after="3s")
    first = site.meanwhile()
    assert slow.begun.wait(TOO_LONG)
    reply = site.ask()
    assert (reply.status, reply.problem["code"], reply.header("retry-after")) == (409, "already_running", "3")
    assert site.ask(body=b"other").status == 422, "another request is a mismatch even while the first is running"
    slow.go.set()
    assert first.result(TOO_LONG).body == b"slow"
    assert site.ask().body == b"slow"
    assert len(site.runs) == 1


def test_a_duplicate_waits_for_the_answer_if_that_is_declared(make_site: MakeSite) -> None:
    slow = Slow()
    site = make_site(slow, wait="30s")
    replies = [site.meanwhile() for _ in range(5)]
    assert slow.begun.wait(TOO_LONG)
    slow.go.set()
    assert {reply.result(TOO_LONG).body for reply in replies} == {b"slow"}
    assert sum(reply.result().replayed for reply in replies) == 4
    assert len(site.runs) == 1


def test_the_work_holds_a_claim_with_a_lease_that_is_kept_alive(site: Site) -> None:
    held: list[Any] = []

    def looks(asked: Asked) -> Answer:
        claim = current_claim() if isinstance(site, WsgiSite) else current_async_claim()
        claim.check()
        held.append((claim.key, claim.derived_key("charge"), len(site.once.heartbeat.held())))
        return (500 if len(held) == 1 else 200), [], b""

    site.handler = looks
    site.ask()
    site.ask()
    assert [(key, holds) for key, _, holds in held] == [("k1", 1), ("k1", 1)]
    assert held[0][1] == held[1][1], "a remote call has the same key on every attempt"
    assert site.once.heartbeat.held() == []


def test_work_that_takes_longer_than_its_lease_keeps_its_key(make_site: MakeSite) -> None:
    def until_renewed(asked: Asked) -> Answer:
        while site.once.counts.get("renewed", 0) < 6:  # more than one lease: five renewals are one
            time.sleep(0.005)
        replies.append(site.meanwhile().result(TOO_LONG).status)
        return 201, [], b"late"

    replies: list[int] = []
    site = make_site(until_renewed, lease="1s")
    assert site.ask().body == b"late"
    assert site.ask().replayed
    assert replies == [409]
    assert len(site.runs) == 1


def test_a_process_that_is_stopping_says_so(site: Site) -> None:
    site.once.stop()
    reply = site.ask()
    assert (reply.status, reply.problem["code"]) == (503, "stopping")
    assert reply.header("retry-after") is not None


@pytest.mark.parametrize("status", [201, 500])
def test_in_the_test_mode_every_request_is_worked_on_and_nothing_is_kept(make_site: MakeSite, status: int) -> None:
    site = make_site(lambda asked: (status, [], b"done"))
    with disabled():
        assert [site.ask()[::2] for _ in range(2)] == [(status, b"done")] * 2
        assert site.ask("malformed").status == 400
    assert len(site.runs) == 2
    assert site.read("k1", tenant="alice") is None
