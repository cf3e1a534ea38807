"""Crashed work that is not delivered again is reported; what an operator decides is settled and described as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward import Once
from onceward.cli.exit_codes import Exit
from onceward.client.audit_identity import user_and_host
from onceward.errors import PreviouslyFailed, ResultNotStored
from tests.cli.calls import as_json, call, silent_claims

STORE = "sqlite:///onceward.db"


@pytest.fixture(autouse=True)
def crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with a key whose worker crashed, declared with after_crash="park"."""
    monkeypatch.chdir(tmp_path)
    with Once(STORE, app="shop", after_crash="park") as once:
        silent_claims(once, {"wire:4": "50ms"})


def said(key: str) -> str:
    return " ".join(as_json("explain", key)["explanation"])


@pytest.mark.finding("N23")
def test_a_crashed_key_that_is_not_delivered_again_is_reported() -> None:
    result = call("check", "-o", "table")
    assert result.exit_code == Exit.ATTENTION
    assert "parked in shop/shared" in result.stdout
    assert "`onceward ls --state PENDING`" in result.stdout
    assert "onceward resolve wire:4 --applied" in said("wire:4")


@pytest.mark.finding("N23")
def test_a_crashed_key_that_may_run_again_is_not_reported() -> None:
    call("resolve", "wire:4", "--applied", "--yes")
    with Once(STORE, app="shop") as once:
        silent_claims(once, {"mail:4": "50ms"})
    assert call("check").exit_code == Exit.OK


@pytest.mark.finding("N23")
def test_a_crash_in_the_last_attempt_is_reported() -> None:
    call("resolve", "wire:4", "--applied", "--yes")
    with Once(STORE, app="shop", max_attempts=1) as once:
        silent_claims(once, {"mail:4": "50ms"})
    assert "parked in shop/shared" in call("check", "-o", "table").stdout


@pytest.mark.finding("N26")
def test_explain_says_that_an_operator_resolved_it_and_what_a_delivery_gets() -> None:
    call("resolve", "wire:4", "--applied", "--yes")
    text = said("wire:4")
    assert "An operator resolved attempt 1 by " in text
    assert f"{user_and_host()} ran resolve applied" in text
    assert "gets null, or ResultNotStored (HTTP: status 410) if the declared type excludes null" in text
    assert "stored result" not in text
    with Once(STORE, app="shop") as once:

        @once(key="{key}", name="shared")
        def wire(key: str) -> int:
            return len(key)

        with pytest.raises(ResultNotStored):
            wire("wire:4")


@pytest.mark.finding("N26")
def test_explain_says_that_a_delivery_gets_the_result_of_the_operator() -> None:
    call("resolve", "wire:4", "--applied", "--result", "5", "--yes")
    assert "gets the stored result" in said("wire:4")


@pytest.mark.finding("N23")
def test_abandoned_work_is_settled_and_raises_no_alert() -> None:
    call("resolve", "wire:4", "--abandon", "--yes")
    assert call("check").exit_code == Exit.OK
    checks = {one["name"]: one["status"] for one in as_json("doctor")}
    assert checks["parked"] == checks["failed final"] == "ok"


@pytest.mark.finding("N26")
def test_explain_and_the_error_of_the_caller_say_that_it_was_abandoned() -> None:
    call("resolve", "wire:4", "--abandon", "--yes")
    text = said("wire:4")
    assert "An operator abandoned it " in text
    assert "onceward retry" not in text
    with Once(STORE, app="shop") as once, pytest.raises(PreviouslyFailed, match="an operator abandoned it") as raised:
        once.run("wire:4", int)
    assert "onceward retry" not in str(raised.value)


@pytest.mark.finding("N26")
def test_abandoned_work_runs_again_only_by_force() -> None:
    call("resolve", "wire:4", "--abandon", "--yes")
    refused = call("retry", "wire:4", "--yes")
    assert refused.exit_code == Exit.REFUSED
    assert "use --force" in refused.stderr
    assert call("retry", "wire:4", "--force", "--yes").exit_code == Exit.OK
    with Once(STORE, app="shop") as once:
        assert once.run("wire:4", lambda: 7) == 7
