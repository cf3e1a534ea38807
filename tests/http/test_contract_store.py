"""The middleware while its store fails: ASGI on `AsyncOnce`, WSGI on `Once`."""

from __future__ import annotations

from typing import Any

import pytest

from onceward import StoreUnavailable
from onceward.errors import StoreError, StoreNotSetUp, VersionSkew
from tests.http.conftest import MakeSite
from tests.sites import Site


def broken(site: Site, verb: str, monkeypatch: pytest.MonkeyPatch, error: StoreError | None = None) -> None:
    async def fails(*args: Any, **kwargs: Any) -> Any:
        raise error or StoreUnavailable("it is down, and its password is hunter2")

    monkeypatch.setattr(site.once.engine, "lookup", None)
    monkeypatch.setattr(site.once.store, verb, fails)


@pytest.mark.fault("F50")
def test_without_the_store_nothing_runs_and_the_response_hides_the_reason(
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
    assert site.ask().status == 409, "until its lease expires, the outcome is unknown"
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
def test_a_failure_that_is_not_recorded_is_reported_unchanged(
    make_site: MakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site(lambda asked: (503, [], b"later"), settle_timeout="10ms")
    broken(site, "settle", monkeypatch)
    assert site.ask()[::2] == (503, b"later")


def test_a_finished_answer_does_not_wait_for_the_store_as_long_as_for_a_lease(make_site: MakeSite) -> None:
    """No client waits ten minutes for an answer, however long the lease is. A timeout that is set counts."""
    assert make_site().app.config.policy.settle_timeout == 20_000_000
    assert make_site(settle_timeout="5m").app.config.policy.settle_timeout == 300_000_000
    assert make_site(client={"settle_timeout": "2m"}).app.config.policy.settle_timeout == 120_000_000
    assert make_site(lease="15s").app.config.policy.settle_timeout == 20_000_000
