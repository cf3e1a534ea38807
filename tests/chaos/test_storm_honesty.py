"""A storm claims no more than it has tested: otherwise it raises `Trouble`, and every planned kill takes place."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

from examples.demo import __main__ as demo
from examples.demo.ending import opening
from examples.demo.systems import SYSTEMS
from onceward import ConfigurationError
from onceward.testing.storm import Plan, Trouble, main, storm
from onceward.testing.storm.plan import Kill
from onceward.testing.storm.process import Worker
from onceward.testing.storm.terminal import TerminalStyle
from onceward.testing.storm.traffic import StormDelivery

INVALID = "tests.chaos.invalid_systems:"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ENDING", r"events\(\) ended after \d+ events were delivered; it must yield events without end"),
        ("MUTE", r'a worker sent {"number":\d+,"result":null}: a handler must return a HandlerResult'),
        ("MISSPELT", r"Invalid enum value 'exectued'"),
        ("UNAUDITED", r"the audit of unaudited failed: RuntimeError\('the tables are gone'\)"),
        ("CLOSED", r"closed could not be opened: ConnectionRefusedError"),
    ],
)
def test_a_system_that_breaks_the_contract_raises_trouble(name: str, why: str) -> None:
    with pytest.raises(Trouble, match=why):
        storm(INVALID + name, Plan(deliveries=100, workers=1, kills=0))


def test_an_audit_that_fails_is_reported_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(INVALID + "UNAUDITED", ["--deliveries", "5", "--workers", "1"]) == 1
    assert "the audit of unaudited failed" in capsys.readouterr().err


def test_a_storm_without_a_delivery_raises_trouble() -> None:
    with pytest.raises(Trouble, match="nothing was delivered"):
        storm(INVALID + "INSTANT", Plan(seconds=1e-9, workers=1, kills=0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"deliveries": 0},
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"seconds": float("nan")},
        {"workers": 0},
        {"kills": -1},
        {"pauses": -1},
        {"pauses": 1, "workers": 1},
        {"pauses": 3, "deliveries": 11},
        {"together": 1.5},
        {"duplicates": float("inf")},
        {"patience": 0.0},
    ],
)
def test_an_impossible_plan_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"{next(iter(wrong))}=.* is not possible"):
        Plan(**wrong)


def test_the_commands_refuse_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(INVALID + "INSTANT", ["--seconds", "0"])
    assert "seconds=0.0 is not possible" in capsys.readouterr().err
    assert demo.main(["--system", "fleet", "--seconds", "-3"]) == 2
    assert "seconds=-3.0 is not possible" in capsys.readouterr().err


def test_every_planned_kill_takes_place_however_quick_the_work_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are planned after the last but one delivery, so late that the others are long done."""
    last = [Kill(0.9, 0.1 * number, 0) for number in range(1, 4)]
    monkeypatch.setattr("onceward.testing.storm.faults.planned_kills", lambda _plan: last)
    run = storm(INVALID + "INSTANT", Plan(deliveries=10, workers=2, kills=3))
    assert (run.score.killed, run.score.redelivered, run.score.acknowledged) == (3, 3, 10)


def test_a_killed_worker_gets_no_more_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have answered before; then its acknowledgement was lost. It must not count as processing a later one."""
    handed: list[bool] = []
    send = Worker.send

    def noted(self: Worker, delivery: StormDelivery) -> None:
        handed.append(self.killed)
        send(self, delivery)

    monkeypatch.setattr(Worker, "send", noted)
    monkeypatch.setattr(Worker, "kill", lambda self: setattr(self, "killed", True))  # it dies late
    with pytest.raises(Trouble, match="no delivery was acknowledged"):
        storm(INVALID + "INSTANT", Plan(deliveries=50, workers=1, kills=1, patience=0.2))
    assert handed
    assert not any(handed)


def test_no_password_is_shown() -> None:
    plan = Plan(seconds=1, store="postgresql://me:se:c/r@et@host/db?password=secret")
    said = opening(SYSTEMS, plan, TerminalStyle(StringIO()))
    assert "on postgresql://host/db." in said
