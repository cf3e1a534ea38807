"""Who may run and read a request: principals, hosts, replays after a loss of rights, quotas, stored credentials."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import pytest

from onceward.errors import ConfigurationError
from onceward.http import quota
from onceward.http.quota import Quota, QuotaCounter
from tests.http.conftest import MakeSite
from tests.sites import JSON, AsgiSite, Site, WsgiSite


@pytest.mark.finding("N34")
def test_an_optional_route_without_a_key_still_needs_a_principal(site: Site) -> None:
    reply = site.ask(None, path="/notes/1", user=None)
    assert (reply.status, reply.problem["code"]) == (401, "no_principal")
    assert site.runs == []
    assert site.ask(None, path="/notes/1", user="alice").status == 201


@pytest.mark.finding("N36")
def test_the_same_key_for_another_host_is_a_mismatch(site: Site) -> None:
    assert site.ask(headers=[JSON, (b"host", b"eu.example.com")]).status == 201
    assert site.ask(headers=[JSON, (b"host", b"EU.example.com")]).replayed
    reply = site.ask(headers=[JSON, (b"host", b"us.example.com")])
    assert (reply.status, reply.problem["differs"]) == (422, ["host"])
    assert len(site.runs) == 1


@pytest.mark.finding("N36")
@pytest.mark.parametrize("refusal", [False, PermissionError("revoked")])
def test_a_caller_who_lost_the_right_gets_no_stored_response(make_site: MakeSite, refusal: Any) -> None:
    answers: list[Any] = [True, refusal]

    def reauthorize(request: Any) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    site = make_site(reauthorize=reauthorize)
    assert site.ask().status == 201
    assert len(answers) == 2, "the first request is authorised by the application itself"
    assert site.ask().replayed
    reply = site.ask()
    assert (reply.status, reply.problem["code"]) == (403, "no_longer_allowed")
    assert b'"id": 1' not in reply.body
    assert len(site.runs) == 1


async def refuse_later(request: Any) -> bool:
    return False


@pytest.mark.finding("N36")
@pytest.mark.parametrize("hook", [refuse_later, partial(refuse_later)], ids=["function", "callable"])
def test_an_async_reauthorize_is_awaited_in_asgi(hook: Any) -> None:
    with closing(AsgiSite(reauthorize=hook)) as site:
        assert [site.ask().status for _ in range(2)] == [201, 403]


@pytest.mark.finding("N36")
def test_an_async_reauthorize_is_never_taken_for_true_in_wsgi() -> None:
    with pytest.raises(ConfigurationError, match="async"):
        WsgiSite(reauthorize=refuse_later)
    with closing(WsgiSite(reauthorize=lambda request: refuse_later(request))) as site:  # noqa: PLW0108 (not recognisable as async)
        assert site.ask().status == 201
        with pytest.raises(ConfigurationError, match="async"):
            site.ask()


@pytest.mark.finding("N36")
def test_reauthorize_is_asked_about_a_response_that_was_not_stored_too(make_site: MakeSite) -> None:
    site = make_site(reauthorize=lambda request: False, max_response=1)
    assert site.ask().status == 201
    assert site.ask().status == 403


CREDENTIALS = (
    "Set-Cookie", "Set-Cookie2", "Authorization", "Authentication-Info", "WWW-Authenticate", "Proxy-Authenticate",
    "Proxy-Authentication-Info", "Proxy-Authorization", "X-Access-Token", "X-Amz-Security-Token", "X-Api-Key",
    "X-Auth-Token", "X-CSRF-Token", "X-Refresh-Token", "X-XSRF-Token",
)  # fmt: skip


@pytest.mark.finding("N46")
@pytest.mark.parametrize("name", CREDENTIALS)
def test_credentials_in_response_headers_are_sent_once_and_never_stored(make_site: MakeSite, name: str) -> None:
    site = make_site(lambda asked: (201, [JSON, (name.encode(), b"hunter2")], b"done"))
    assert any(value == b"hunter2" for _, value in site.ask().headers)
    replay = site.ask()
    assert replay.replayed
    assert all(b"hunter2" not in value for _, value in replay.headers)
    entry = site.read("k1", tenant="alice")
    assert entry is not None
    assert b"hunter2" not in (entry.value or b"")


@pytest.mark.finding("N46")
def test_a_principal_over_its_quota_of_keys_gets_a_429_and_others_do_not(make_site: MakeSite) -> None:
    site = make_site(quota=Quota(keys=2, bytes=1_000_000, per="1h"))
    assert [site.ask(f'"k{n}"').status for n in range(3)] == [201, 201, 429]
    refused = site.ask('"k2"')
    assert refused.problem["code"] == "over_quota"
    assert "Nothing was done" not in refused.problem["detail"], "an earlier period may have processed it"
    assert 1 <= int(refused.header("retry-after") or 0) <= 3600
    assert site.ask('"k0"').replayed, "a key that was counted stays usable"
    assert site.ask('"k9"', user="bob").status == 201
    assert len(site.runs) == 3


@pytest.mark.finding("N46")
def test_a_principal_over_its_quota_of_bytes_gets_a_429(make_site: MakeSite) -> None:
    site = make_site(lambda asked: (200, [], b"x" * 60), quota=Quota(keys=100, bytes=100))
    assert site.ask('"k0"', user="bob").status == 200
    assert [site.ask(f'"k{n}"').status for n in range(3)] == [200, 200, 429]
    assert [site.ask(f'"k{n}"', user="bob").status for n in (1, 2)] == [200, 429], "each principal has a quota"


def test_a_quota_starts_again_with_the_next_period() -> None:
    now = [0.0]
    counter = QuotaCounter(Quota(keys=1, bytes=10, per="1m"), clock=lambda: now[0])
    assert counter.admit("alice", b"1") is None
    assert counter.admit("alice", b"2") == 60
    now[0] = 59.0
    assert counter.admit("alice", b"2") == 1
    now[0] = 60.0
    assert counter.admit("alice", b"2") is None


@pytest.mark.finding("N46")
def test_beyond_the_limit_of_principals_the_one_idle_for_longest_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "MAX_PRINCIPALS", 2)
    counter = QuotaCounter(Quota(keys=1, bytes=10), clock=lambda: 0.0)
    assert [counter.admit(one, b"1") for one in ("alice", "bob", "alice", "carol")] == [None] * 4
    assert counter.admit("alice", b"2") is not None, "bob was idle for longer"
    assert counter.admit("bob", b"2") is None


@pytest.mark.parametrize(
    "choices", [{"quota": 5}, {"reauthorize": "yes"}], ids=["a number is no quota", "a text is no function"]
)
def test_settings_that_cannot_work_are_refused(make_site: MakeSite, choices: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        make_site(**choices)


@pytest.mark.parametrize("choices", [{"keys": 0, "bytes": 1}, {"keys": 1, "bytes": -1}, {"keys": True, "bytes": 1}])
def test_a_quota_that_allows_nothing_is_refused(choices: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="allows no request"):
        Quota(**choices)
    with pytest.raises(ConfigurationError, match="not a period"):
        Quota(keys=1, bytes=1, per=0)
