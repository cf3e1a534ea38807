"""The contract of the middleware, the same in both colours: ASGI on `AsyncOnce`, WSGI on `Once`."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from onceward import (
    ConfigurationError,
    MemoryStore,
    Once,
    StoreError,
    StoreNotSetUp,
    StoreUnavailable,
    VersionSkew,
    current_async_claim,
    current_claim,
    not_applied,
    verify,
)
from onceward.http import asgi, wsgi
from onceward.testing import disabled
from tests.http.conftest import MakeSite
from tests.sites import JSON, Answer, Asked, Site, WsgiSite

TOO_LONG = 30


@pytest.mark.mission("B6")
def test_the_same_request_twice_is_worked_on_once_and_answered_twice(site: Site) -> None:
    first, second = site.ask(), site.ask()
    assert (first.status, first.body) == (second.status, second.body) == (201, b'{"id": 1}')
    assert not first.replayed
    assert second.replayed
    assert len(site.runs) == 1


@pytest.mark.mission("B6")
def test_another_key_is_other_work(site: Site) -> None:
    assert not site.ask('"k1"').replayed
    assert not site.ask('"k2"').replayed
    assert len(site.runs) == 2


def test_how_long_a_key_is_known_is_told_with_every_answer(make_site: MakeSite) -> None:
    site = make_site(window="2h")
    assert [site.ask().header("idempotency-window") for _ in range(2)] == ["7200", "7200"]


@pytest.mark.rival(14)
def test_a_replay_has_the_headers_of_the_first_answer_repeated_ones_included(make_site: MakeSite) -> None:
    told = [JSON, (b"link", b"</a>; rel=next"), (b"vary", b"accept"), (b"link", b"</b>; rel=last"), (b"x-empty", b"")]
    site = make_site(lambda asked: (200, told, b"\x00\xff binary \r\n\r\n body"))
    first, second = site.ask(), site.ask()
    assert first.headers[: len(told)] == told
    assert second.headers[: len(told)] == told
    assert second.body == first.body == b"\x00\xff binary \r\n\r\n body"


@pytest.mark.rival(14)
def test_cookies_and_what_belongs_to_a_connection_are_given_once_and_not_kept(make_site: MakeSite) -> None:
    told = [
        JSON,
        (b"set-cookie", b"session=secret"),
        (b"Set-Cookie", b"other=secret"),
        (b"x-of-this-connection", b"1"),
        (b"connection", b"close, X-Of-This-Connection"),
        (b"keep-alive", b"timeout=5"),
        (b"trailer", b"x"),
        (b"upgrade", b"h2c"),
    ]
    site = make_site(lambda asked: (200, told, b"{}"))
    assert site.ask().headers[: len(told)] == told
    replay = site.ask()
    assert replay.replayed
    assert [name for name, _ in replay.headers] == [b"content-type", b"idempotency-replayed", b"idempotency-window"]


def test_people_find_the_record_under_its_principal_and_its_key_and_can_read_the_answer(make_site: MakeSite) -> None:
    site = make_site(lambda asked: (201, [JSON], b'{"id": 1}'))
    site.ask()
    entry = site.read("k1", tenant="alice")
    assert entry is not None
    assert entry.value == b'201\r\ncontent-type: application/json\r\n\r\n{"id": 1}'
    assert site.read("k1", tenant="bob") is None


# ── what is refused ──


@pytest.mark.fault("F78", "F5")
def test_a_required_key_that_is_missing_is_a_400_that_says_where_to_read_more(make_site: MakeSite) -> None:
    site = make_site(documentation="https://example.com/keys")
    reply = site.ask(None)
    assert reply.status == 400
    assert reply.problem["code"] == "missing_key"
    assert reply.problem["type"] == "https://example.com/keys"
    assert reply.header("link") == '<https://example.com/keys>; rel="describedby"'
    assert site.runs == []


MALFORMED = [
    "",
    '"',
    '""',
    "k1",
    '"k1',
    'k1"',
    "k 1",
    '"a", "b"',
    '"a" ;p=1',
    '"a";',
    '"a";P=1',
    '"a";p=',
    '"a";p="',
    '"a";p=1;',
    '"a";p=1, "b"',
    "'k1'",
    '"k\\n"',
    '"k\x01"',
    '"k\xe9"',
    "1",
    ":aGk=:",
]


@pytest.mark.fault("F78", "F5")
@pytest.mark.parametrize("key", MALFORMED)
def test_a_malformed_key_is_a_400(site: Site, key: str) -> None:
    reply = site.ask(key)
    assert reply.status == 400
    assert reply.problem["code"] in ("invalid_key", "missing_key")
    assert site.runs == []


@pytest.mark.fault("F78")
def test_a_key_that_comes_twice_is_a_400(site: Site) -> None:
    reply = site.ask('"a"', headers=[JSON, (b"idempotency-key", b'"a"')])
    assert (reply.status, reply.problem["code"]) == (400, "invalid_key")
    assert site.runs == []


@pytest.mark.rival(30)
def test_a_method_in_small_letters_which_some_frameworks_take_for_the_large_ones_needs_a_key_too(site: Site) -> None:
    assert site.ask(None, method="post").status == 400
    assert site.runs == []


@pytest.mark.rival(30)
@pytest.mark.parametrize("path", ["/files/", "/files/a", "/files/a/b"])
def test_a_route_for_any_number_of_segments_means_none_of_them_too(make_site: MakeSite, path: str) -> None:
    site = make_site(required=["/files/{rest:path}"])
    assert site.ask(None, path=path).status == 400
    assert site.runs == []


def test_bare_keys_are_taken_if_that_is_declared_and_are_the_same_as_quoted_ones(make_site: MakeSite) -> None:
    site = make_site(bare_keys=True)
    assert site.ask("8e03978e-40d5").status == 201
    assert site.ask('"8e03978e-40d5"').replayed
    for key in ("a, b", "a b", "", '"a'):
        assert site.ask(key).status == 400, key
    assert len(site.runs) == 1


def test_without_a_principal_a_route_with_keys_is_a_401_and_never_anonymous(make_site: MakeSite) -> None:
    site = make_site(challenge="Bearer")
    for key in ('"k1"', None, "malformed"):
        reply = site.ask(key, user=None)
        assert (reply.status, reply.problem["code"]) == (401, "no_principal")
        assert reply.header("www-authenticate") == "Bearer"
    assert site.ask(user="").status == 401
    assert site.ask(user=None, path="/notes/1").status == 401, "a key that belongs to nobody protects nothing"
    assert site.runs == []


@pytest.mark.rival(16)
def test_the_key_of_another_user_is_another_key(site: Site) -> None:
    site.handler = lambda asked: (200, [], b"for %d" % len(site.runs))
    assert site.ask(user="alice").body == b"for 1"
    assert site.ask(user="bob").body == b"for 2"
    assert site.ask(user="alice").body == b"for 1"


@pytest.mark.rival(16)
@pytest.mark.fault("F78", "F18")
@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ({"body": b'{"cents": 6}'}, ["body"]),
        ({"path": "/orders/1/pay"}, ["target"]),
        ({"query": b"a=1"}, ["target"]),
        ({"method": "PATCH"}, ["target"]),
        ({"headers": [(b"content-type", b"text/plain")]}, ["content_type"]),
        ({"body": b"", "query": b"a"}, ["target", "body"]),
    ],
)
def test_the_same_key_with_another_request_is_a_422_that_names_what_differs(
    site: Site, other: dict[str, Any], differs: list[str]
) -> None:
    site.ask()
    reply = site.ask(**other)
    assert (reply.status, reply.problem["code"]) == (422, "payload_mismatch")
    assert reply.problem["differs"] == differs
    assert len(site.runs) == 1


def test_a_body_over_the_limit_is_a_413_and_nothing_is_claimed(make_site: MakeSite) -> None:
    site = make_site(max_body=10)
    assert site.ask(body=b"x" * 10).status == 201
    reply = site.ask('"k2"', body=b"x" * 11)
    assert (reply.status, reply.problem["code"]) == (413, "body_too_large")
    assert site.ask('"k2"', body=[b"x" * 6, b"x" * 6]).status == 413
    assert site.ask('"k2"', body=b"x").status == 201, "the key was not used"


# ── which answers are kept ──


@pytest.mark.parametrize("status", [200, 201, 202, 204, 301, 303, 400, 404, 405, 409, 410, 412, 422, 451])
def test_an_answer_of_the_application_is_kept(make_site: MakeSite, status: int) -> None:
    site = make_site(lambda asked: (status, [], b""))
    assert [site.ask().status for _ in range(3)] == [status] * 3
    assert len(site.runs) == 1


@pytest.mark.parametrize("status", [401, 403, 408, 425, 429, 500, 502, 503, 504, 599])
def test_an_answer_that_says_not_now_frees_the_key(make_site: MakeSite, status: int) -> None:
    site = make_site(lambda asked: (status, [(b"retry-after", b"7")], b"no"))
    reply = site.ask()
    assert (reply.status, reply.header("retry-after"), reply.body) == (status, "7", b"no")
    site.handler = lambda asked: (201, [], b"yes")
    assert site.ask().body == b"yes"
    assert site.ask().replayed
    assert site.ask(body=b"other").status == 422, "what a key stands for does not change by a failure"
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
def test_an_answer_that_is_too_large_is_given_once_and_then_told_to_be_gone(
    make_site: MakeSite, body: bytes | list[bytes]
) -> None:
    site = make_site(lambda asked: (200, [], body), max_answer=1000)
    assert site.ask().body == (body if isinstance(body, bytes) else b"".join(body))
    reply = site.ask()
    assert (reply.status, reply.problem["code"]) == (410, "result_not_stored")
    assert len(site.runs) == 1
    assert "result_not_stored" in site.events


@pytest.mark.parametrize("client", [{}, {"max_result_bytes": 100}], ids=["default", "other results are small"])
def test_the_limit_of_an_answer_is_the_one_that_was_declared(make_site: MakeSite, client: dict[str, Any]) -> None:
    answer = random.Random(1).randbytes(2_000_000)
    site = make_site(lambda asked: (200, [], answer), client=client, max_answer=len(answer))
    assert site.ask().body == answer
    again = site.ask()
    assert (again.replayed, again.body == answer) == (True, True)


def test_a_streamed_answer_is_kept_if_it_is_small_enough(make_site: MakeSite) -> None:
    site = make_site(lambda asked: (200, [JSON], [b"[1", b",2", b"", b"]"]), max_answer=5)
    assert [site.ask().body for _ in range(2)] == [b"[1,2]"] * 2
    assert len(site.runs) == 1


def test_what_no_server_would_send_is_not_sent_later_either(make_site: MakeSite) -> None:
    site = make_site(lambda asked: (200, [(b"x", b"a\r\nset-cookie: b=c")], b""))
    site.ask()
    assert site.ask().status == 410


@pytest.mark.parametrize("length", [b"2", b"4"])
def test_an_answer_that_is_not_as_long_as_it_says_is_no_answer_to_keep(make_site: MakeSite, length: bytes) -> None:
    site = make_site(lambda asked: (200, [(b"Content-Length", length)], b"abc"))
    site.ask()
    assert site.ask().status == 410
    assert len(site.runs) == 1


# ── while it is running ──


class Slow:
    """A handler that waits in the middle of its work."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self, asked: Asked) -> Answer:
        self.begun.set()
        assert self.go.wait(TOO_LONG)
        return 201, [], b"slow"


@pytest.mark.fault("F78")
def test_while_it_is_running_a_duplicate_is_a_409_with_retry_after(make_site: MakeSite) -> None:
    slow = Slow()
    site = make_site(slow, retry_after="3s")
    first = site.meanwhile()
    assert slow.begun.wait(TOO_LONG)
    reply = site.ask()
    assert (reply.status, reply.problem["code"], reply.header("retry-after")) == (409, "already_running", "3")
    assert site.ask(body=b"other").status == 422, "another request is told so also while the first is running"
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
        held.append((claim.key, claim.derived_key("charge"), len(site.once.keeper._holds)))
        return (500 if len(held) == 1 else 200), [], b""

    site.handler = looks
    site.ask()
    site.ask()
    assert [(key, holds) for key, _, holds in held] == [("k1", 1), ("k1", 1)]
    assert held[0][1] == held[1][1], "a remote call has the same key on every attempt"
    assert site.once.keeper._holds == {}


def test_work_that_takes_longer_than_its_lease_keeps_its_key(make_site: MakeSite) -> None:
    def until_renewed(asked: Asked) -> Answer:
        while site.once.counts.get("renewed", 0) < 8:  # more than one lease: five renewals are one
            time.sleep(0.005)
        replies.append(site.meanwhile().result(TOO_LONG).status)
        return 201, [], b"late"

    replies: list[int] = []
    site = make_site(until_renewed, lease="100ms")
    assert site.ask().body == b"late"
    assert site.ask().replayed
    assert replies == [409]
    assert len(site.runs) == 1


# ── what is not ours ──


@pytest.mark.fault("F77")
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_other_methods_are_not_looked_at_even_with_a_key(site: Site, method: str) -> None:
    for _ in range(2):
        assert not site.ask(method=method).replayed
    assert site.ask("malformed", method=method, user=None).status == 201
    assert len(site.runs) == 3


@pytest.mark.fault("F77")
def test_other_routes_and_optional_ones_without_a_key_are_not_looked_at(site: Site) -> None:
    for path in ("/other", "/pay/more", "/orders/1/2/pay", "/"):
        assert site.ask("malformed", path=path, user=None).status == 201
    assert site.ask(None, path="/notes/1", user=None).status == 201
    assert site.ask(path="/notes/1/2").status == 201
    assert site.ask(path="/notes/1/2").replayed


# ── the store ──


def broken(site: Site, verb: str, monkeypatch: pytest.MonkeyPatch, error: StoreError | None = None) -> None:
    async def fails(*args: Any, **kwargs: Any) -> Any:
        raise error or StoreUnavailable("it is down, and its password is hunter2")

    monkeypatch.setattr(site.once.engine, "answer", None)
    monkeypatch.setattr(site.once.engine, "glance", None)
    monkeypatch.setattr(site.once.store, verb, fails)


@pytest.mark.fault("F50")
def test_without_the_store_nothing_is_run_and_nothing_of_it_is_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(site, "claim", monkeypatch)
    reply = site.ask()
    assert (reply.status, reply.problem["code"], reply.header("retry-after")) == (503, "store_unavailable", "1")
    assert b"hunter2" not in reply.body
    assert site.runs == []


@pytest.mark.fault("F50")
def test_without_the_store_it_runs_unprotected_only_if_that_is_declared_and_is_loud(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(on_store_down="run")
    broken(site, "claim", monkeypatch)
    assert [site.ask().status for _ in range(2)] == [201, 201]
    assert len(site.runs) == 2
    assert "unprotected" in site.events


@pytest.mark.fault("F50")
@pytest.mark.parametrize("error", [StoreNotSetUp("no tables"), VersionSkew("newer")], ids=lambda error: error.code)
def test_a_store_that_was_never_set_up_is_not_down_whatever_is_declared(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch, error: StoreError
) -> None:
    site = make_site(on_store_down="run")
    broken(site, "claim", monkeypatch, error)
    assert (site.ask().status, site.runs) == (503, [])


@pytest.mark.fault("F51")
def test_work_whose_record_is_not_confirmed_is_no_success(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(settle_timeout="10ms")
    broken(site, "settle", monkeypatch)
    reply = site.ask()
    assert (reply.status, reply.problem["code"]) == (503, "outcome_unknown")
    assert "unknown" in site.events
    monkeypatch.undo()
    assert site.ask().status == 409, "until its lease lapses, nobody knows"
    assert len(site.runs) == 1


@pytest.mark.fault("F51")
def test_a_stream_whose_record_is_not_confirmed_is_visibly_not_whole(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(lambda asked: (200, [], [b"a", b"b", b"c"]), settle_timeout="10ms")
    broken(site, "settle", monkeypatch)
    with pytest.raises(Exception, match="could not be settled"):
        site.ask()
    assert len(site.runs) == 1


@pytest.mark.fault("F51")
def test_a_failure_that_is_not_recorded_is_told_as_it_was(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_site(lambda asked: (503, [], b"later"), settle_timeout="10ms")
    broken(site, "settle", monkeypatch)
    assert site.ask()[::2] == (503, b"later")


def test_a_finished_answer_does_not_wait_for_the_store_as_long_as_for_a_lease(make_site: MakeSite) -> None:
    """Nobody waits ten minutes for an answer. What was chosen counts, here or at the client; so does a short lease."""
    assert make_site().app.contract.policy.settle_timeout == 20_000_000
    assert make_site(settle_timeout="5m").app.contract.policy.settle_timeout == 300_000_000
    assert make_site(client={"settle_timeout": "2m"}).app.contract.policy.settle_timeout == 120_000_000
    assert make_site(lease="15s").app.contract.policy.settle_timeout is None, "which means as long as the lease"


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
    """Clients follow it with the same header, and the request has another path there."""
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
    assert site.ask().status == 409, "until its lease lapses"


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


# ── choices ──


@pytest.mark.parametrize(
    "choices",
    [
        {"required": [], "optional": []},
        {"required": ["pay"]},
        {"methods": ["GET", "POST"]},
        {"methods": ["post"]},
        {"principal": None},
        {"principal": "alice"},
        {"windows": "1h"},
        {"store_result": False},
        {"lease": 0},
        {"stall_timeout": 0},
        {"documentation": "https://example.com/schlüssel"},
        {"documentation": "https://example.com/\r\nx: y"},
        {"documentation": "https://example.com/>; rel=x"},
        {"challenge": "Bearer realm=für"},
        {"challenge": "Bearer\r\nx: y"},
    ],
)
def test_a_choice_that_cannot_work_is_refused_when_it_is_declared(make_site: MakeSite, choices: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        make_site(**choices)


def test_a_client_that_looks_up_every_effect_is_refused_as_the_choice_itself_would_be(make_site: MakeSite) -> None:
    with pytest.raises(ConfigurationError, match="verify"):
        make_site(client={"after_crash": verify(lambda: not_applied)})
    make_site(client={"after_crash": verify(lambda: not_applied)}, after_crash="rerun")


def test_a_client_of_the_other_colour_is_refused_or_shown_its_async_face() -> None:
    chosen: Any = {"principal": lambda request: "a", "optional": ["*"]}
    app: Any = object()
    with Once(MemoryStore()) as once:
        asgi.IdempotencyMiddleware(app, once, **chosen)
        with pytest.raises(ConfigurationError, match="tenant"):
            wsgi.IdempotencyMiddleware(app, once.using(tenant="acme"), **chosen)
    for middleware in (asgi.IdempotencyMiddleware, wsgi.IdempotencyMiddleware):
        with pytest.raises(ConfigurationError):
            middleware(app, "memory://", **chosen)  # type: ignore[arg-type]  # that is the point


def test_a_principal_that_is_no_text_is_a_mistake_and_nobodys_name(make_site: MakeSite) -> None:
    site = make_site(principal=lambda request: 5)
    with pytest.raises(ConfigurationError, match="principal"):
        site.ask()
