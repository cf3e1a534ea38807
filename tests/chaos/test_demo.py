"""The demo: the storms of the systems, a table for terminals, and an honest summary."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo import __main__ as demo
from examples.demo.systems import SYSTEMS
from onceward.testing.storm import Audit, Effect, Plan, Run, Score
from onceward.testing.storm.scoreboard import Scoreboard

ROOT = Path(__file__).resolve().parents[2]
ONE = ("--system", "submissions", "--seconds", "1")


def test_every_example_with_a_storm_is_in_the_demo() -> None:
    with_storms = {path.parent.name for path in (ROOT / "examples").glob("*/storm.py")}
    assert {listed.name for listed in SYSTEMS} == with_storms
    assert not [why for listed in SYSTEMS if (why := listed.missing())]


def test_the_demo_reports_what_it_counted_and_what_it_did_not_promise(capfd: pytest.CaptureFixture[str]) -> None:
    assert demo.main([*ONE, "--quick"]) == 0
    said = capfd.readouterr().out
    assert re.search(r"submissions PASSED: delivered \d+, .* effects \d+, duplicates 0, lost 0", said)
    assert "counted, not promised: " in said
    assert "none twice, none lost" in said
    assert "\x1b" not in said, "a pipe gets plain lines"


def test_without_onceward_it_fails_on_purpose_and_names_the_duplicates(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    certain = Plan(deliveries=80, seconds=60, workers=4, kills=0, pauses=0, duplicates=3, together=1.0, guarded=False)
    monkeypatch.setattr(demo, "make_plan", lambda *_: certain)
    assert demo.main([*ONE, "--unguarded"]) == 1
    said = capfd.readouterr().out
    assert "Without Onceward, " in said
    assert re.search(r"duplicate: (row|charge) of Company", said)


def test_a_system_that_cannot_be_imported_is_a_line_and_not_a_success(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "examples.submissions.storm", None)
    assert demo.main([*ONE]) == 1
    said = capfd.readouterr()
    assert "submissions is skipped: " in said.out
    assert "there is no system to run" in said.err


def test_a_store_that_cannot_be_reached_is_a_line_before_anything_is_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--system", "fleet", "--store", "redis://127.0.0.1:1"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("cannot start the storm: redis://127.0.0.1:1")
    assert err.count("\n") == 1


# ── The scoreboard ──────────────────────────────────────────────────────────────────────────────────────────────────


def drawn(monkeypatch: pytest.MonkeyPatch, columns: int = 120) -> str:
    """Return what a terminal of that width shows of a failed storm."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    try:
        with os.fdopen(theirs, "w") as terminal:
            board = Scoreboard(["fleet", "orders"], terminal)
            board.show("orders", Score(delivered=5, executed=2, progress=0.4, seconds=1))
            audit = Audit(expected=2, effects=3, duplicates=["order-7"])
            run = Run("orders", [Effect("row", "once")], Plan(), 2, Score(delivered=9, executed=3), audit, 1.0)
            board.finish("orders", run)
        return b"".join(iter(lambda: read_terminal(ours), b"")).decode()
    finally:
        os.close(ours)


def read_terminal(terminal: int) -> bytes:
    """Return what was written; nothing once the other end is closed."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_a_terminal_gets_one_table_that_is_drawn_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    said = drawn(monkeypatch)
    first, second = said.split("\x1b[4F")
    assert "delivered executed replayed stale taken over killed paused effects duplicates lost" in first
    assert "▶\x1b[0m \x1b[1morders" in first
    assert "█" in first
    assert first.count("\n") == second.count("\n") == 4
    assert "✗\x1b[0m \x1b[1morders" in second
    assert "\x1b[31m          1\x1b[0m" in second, "the duplicates are red"


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[\d+(;\d+)*m", drawn(monkeypatch))


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_no_line_of_the_table_is_longer_than_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain = re.sub(r"\x1b\[[\d;]*[a-zA-Z]", "", drawn(monkeypatch, columns))
    assert max(len(line) for line in plain.split("\r\n")) <= columns
    assert "orders" in plain


def test_a_terminal_that_is_too_narrow_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[4F" not in drawn(monkeypatch, 40)


def test_make_demo_hands_its_settings_on() -> None:
    asked = ["make", "--dry-run", "demo", "SYSTEM=fleet", "SECONDS=20", "STORE=redis://x", "ARGS=--quick"]
    said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    command = " ".join(said.replace("\\\n", " ").split())
    assert "-m examples.demo --system fleet --seconds 20 --store 'redis://x' --quick" in command
