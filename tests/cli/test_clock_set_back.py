"""A store whose clock was set back: leases of stopped workers last too long, and the command says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onceward import Once
from onceward.cli.exit_codes import Exit
from onceward.cli.settings import VARIABLES
from onceward.stores.clock import WallClock
from onceward.stores.sqlite import SQLiteStore
from tests.cli.calls import call

pytestmark = [pytest.mark.finding("N75")]


class FastClock(WallClock):
    """The clock of a machine before it was set back by half an hour."""

    def now(self) -> int:
        return super().now() + 30 * 60 * 1_000_000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "onceward.db"


def claim_and_die(store: Path, clock: WallClock) -> None:
    once = Once(SQLiteStore(store, clock=clock), lease="2s")
    once.heartbeat.tick = lambda: None  # type: ignore[method-assign]  # its worker renews nothing any more
    once.claim("k").__enter__()


def test_explain_and_doctor_say_that_a_lease_lasts_too_long(store: Path) -> None:
    claim_and_die(store, FastClock())
    explained = call("explain", "k").stdout
    assert "The store's clock was set back by at least" in explained
    assert "onceward release k --force" in explained
    result = call("doctor")
    assert result.exit_code == Exit.ATTENTION
    [check] = [one for one in json.loads(result.stdout) if one["name"] == "long leases"]
    assert check["status"] == "attention"
    assert "onceward release k --force" in check["detail"]
    assert call("release", "k", "--force", "--why", "the host is gone", "--yes").exit_code == Exit.OK
    with Once(SQLiteStore(store)) as once:
        assert once.run("k", lambda: "taken over") == "taken over"


def test_a_lease_on_a_clock_that_was_not_set_back_is_no_finding(store: Path) -> None:
    claim_and_die(store, WallClock())
    assert "set back" not in call("explain", "k").stdout
    assert "long leases" not in call("doctor").stdout
