"""Which answers the middleware keeps, the same for ASGI on `AsyncOnce` and WSGI on `Once`."""

from __future__ import annotations

import random
from typing import Any

import pytest

from onceward.protocol.unstored import unstored_hint
from tests.http.conftest import MakeSite
from tests.http.test_contract_store import broken
from tests.sites import JSON, Answer, Asked, Site

# ── which answers are kept ──


@pytest.mark.parametrize("status", [200, 201, 202, 204, 301, 303, 400, 404, 405, 409, 410, 412, 422, 451])
def test_an_answer_of_the_application_is_kept(make_site: MakeSite, status: int) -> None:
    site = make_site(lambda asked: (status, [], b""))
    assert [site.ask().status for _ in range(3)] == [status] * 3
    assert len(site.runs) == 1


@pytest.mark.parametrize("status", [401, 403, 408, 425, 429, 500, 502, 503, 504, 599])
def test_a_retryable_answer_frees_the_key(make_site: MakeSite, status: int) -> None:
    site = make_site(lambda asked: (status, [(b"retry-after", b"7")], b"no"))
    reply = site.ask()
    assert (reply.status, reply.header("retry-after"), reply.body) == (status, "7", b"no")
    site.handler = lambda asked: (201, [], b"yes")
    assert site.ask().body == b"yes"
    assert site.ask().replayed
    assert site.ask(body=b"other").status == 422, "a failure does not change the request that a key stands for"
    assert len(site.runs) == 2


@pytest.mark.rival(17)
def test_an_exception_is_the_servers_as_it_was_and_frees_the_key(site: Site) -> None:
    def fails(asked: Asked) -> Answer:
        raise LookupError("no such order")

    site.handler = fails
    for _ in range(2):
        with pytest.raises(LookupError, match="no such order"):
            site.ask()
    site.handler = lambda asked: (201, [], b"yes")
    assert site.ask().body == b"yes"
    assert len(site.runs) == 3


@pytest.mark.rival(17)
@pytest.mark.parametrize("client", [{"retry": ConnectionError}, {"final": Exception}], ids=["retry", "final"])
@pytest.mark.parametrize("status", [429, 503])
def test_what_a_client_says_about_exceptions_does_not_change_what_a_status_means(
    make_site: MakeSite, client: dict[str, Any], status: int
) -> None:
    site = make_site(lambda asked: (status, [], b""), client=client)
    assert [site.ask().status for _ in range(2)] == [status] * 2
    assert len(site.runs) == 2


def test_attempts_may_be_limited(make_site: MakeSite) -> None:
    site = make_site(lambda asked: (500, [], b""), max_attempts=2)
    assert [site.ask().status for _ in range(4)] == [500, 500, 409, 409]
    assert site.ask().problem["code"] == "previously_failed"
    assert site.ask().header("retry-after") is None


def test_a_retry_may_have_to_wait(make_site: MakeSite) -> None:
    site = make_site(lambda asked: (500, [], b""), retry_delay="90s")
    assert site.ask().status == 500
    reply = site.ask()
    assert (reply.status, reply.problem["code"]) == (409, "previously_failed")
    assert 1 <= int(reply.header("retry-after") or 0) <= 90
    assert len(site.runs) == 1


def test_where_a_crash_parks_a_server_error_parks_and_a_refusal_does_not(make_site: MakeSite) -> None:
    site = make_site(lambda asked: (429, [], b""), after_crash="park")
    assert site.ask().status == 429
    site.handler = lambda asked: (500, [], b"")
    assert site.ask().status == 500
    reply = site.ask()
    assert (reply.status, reply.problem["code"]) == (409, "outcome_parked")
    assert len(site.runs) == 2


@pytest.mark.rival(13)
@pytest.mark.parametrize("body", [b"x" * 1001, [b"x" * 600] * 5], ids=["whole", "in parts"])
@pytest.mark.finding("N26")
def test_an_answer_that_is_too_large_is_given_once_and_then_a_410(
    make_site: MakeSite, body: bytes | list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site(lambda asked: (200, [], body), max_response=1000)
    assert site.ask().body == (body if isinstance(body, bytes) else b"".join(body))
    reply = site.ask()
    assert (reply.status, reply.problem["code"]) == (410, "result_not_stored")
    assert len(site.runs) == 1
    assert "result_not_stored" in site.events
    assert "the response is larger than max_response" in caplog.text
    assert "is not a type" not in caplog.text
    entry = site.read("k1", tenant="alice")
    assert entry is not None
    assert "increase max_response=" in unstored_hint(entry.unstored)


@pytest.mark.parametrize("client", [{}, {"max_result_bytes": 100}], ids=["default", "other results are small"])
def test_the_limit_of_an_answer_is_the_one_that_was_declared(make_site: MakeSite, client: dict[str, Any]) -> None:
    answer = random.Random(1).randbytes(2_000_000)
    site = make_site(lambda asked: (200, [], answer), client=client, max_response=len(answer))
    assert site.ask().body == answer
    again = site.ask()
    assert (again.replayed, again.body == answer) == (True, True)


def test_a_streamed_answer_is_kept_if_it_is_small_enough(make_site: MakeSite) -> None:
    site = make_site(lambda asked: (200, [JSON], [b"[1", b",2", b"", b"]"]), max_response=5)
    assert [site.ask().body for _ in range(2)] == [b"[1,2]"] * 2
    assert len(site.runs) == 1


def test_an_answer_that_no_server_would_send_is_not_replayed(make_site: MakeSite) -> None:
    site = make_site(lambda asked: (200, [(b"x", b"a\r\nset-cookie: b=c")], b""))
    site.ask()
    assert site.ask().status == 410


@pytest.mark.parametrize("length", [b"2", b"4"])
def test_an_answer_that_is_not_as_long_as_it_says_is_no_answer_to_keep(make_site: MakeSite, length: bytes) -> None:
    site = make_site(lambda asked: (200, [(b"Content-Length", length)], b"abc"))
    site.ask()
    assert site.ask().status == 410
    assert len(site.runs) == 1


# ── redirects ──


def moved(status: int) -> Any:
    def handler(asked: Asked) -> Answer:
        return (201, [], b"paid") if asked.path == "/pay/" else (status, [(b"location", b"/pay/")], b"")

    return handler


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("choices", [{}, {"after_crash": "park"}], ids=["rerun", "park"])
def test_a_redirect_that_repeats_the_request_elsewhere_gives_its_key_back(
    make_site: MakeSite, status: int, choices: dict[str, Any]
) -> None:
    """Clients follow the redirect with the same header, and the new request has another path."""
    site = make_site(moved(status), required=["/pay", "/pay/"], **choices)
    assert [site.ask().status for _ in range(2)] == [status, status]
    assert "released" in site.events
    assert (site.ask(path="/pay/").status, site.ask(path="/pay/").replayed) == (201, True)
    assert site.ask().status == 422, "from now on the key is taken"
    assert [asked.path for asked in site.runs] == ["/pay", "/pay", "/pay/"]


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_shows_the_result_is_an_answer_like_any_other(make_site: MakeSite, status: int) -> None:
    site = make_site(moved(status))
    first, second = site.ask(), site.ask()
    assert (first.status, second.status, second.replayed, len(site.runs)) == (status, status, True, 1)
    assert second.header("location") == "/pay/"


def test_after_an_attempt_that_may_have_done_something_a_redirect_does_not_free_the_key_for_another_path(
    make_site: MakeSite,
) -> None:
    site = make_site(required=["/pay", "/pay/"])
    site.handler = lambda asked: (500, [], b"broken")
    assert site.ask().status == 500
    site.handler = moved(308)
    assert site.ask().status == 308
    assert site.ask(path="/pay/").status == 422
    site.handler = lambda asked: (201, [], b"paid")
    assert site.ask().status == 201, "the same request may still be tried again"


@pytest.mark.fault("F51")
def test_a_key_that_cannot_be_given_back_lapses(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(moved(307), required=["/pay", "/pay/"], settle_timeout="10ms")
    broken(site, "settle", monkeypatch)
    assert site.ask().status == 307
    assert "unknown" in site.events
    monkeypatch.undo()
    assert site.ask().status == 409, "until its lease expires"
