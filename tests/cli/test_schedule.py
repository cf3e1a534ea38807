"""`onceward schedule`: real concurrent runners in the foreground, stopped and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onceward import Once
from tests.cli.calls import call, finish, line, process, start, until

ROOT = Path(__file__).parents[2]

APP = """
import time
from pathlib import Path
from onceward import AsyncOnce, Once
from onceward.stores import MemoryStore

once = Once("sqlite:///jobs.db", lease="5s")
awaited = AsyncOnce("sqlite:///jobs.db", app="awaited")
empty = Once(MemoryStore())

@once.schedule("* * * * * *", name="long")
def long(scheduled_at):
    Path(f"begun-{scheduled_at.timestamp():.0f}").touch()
    time.sleep(1.5)
    Path("ended").touch()

failing = Once("sqlite:///failing.db")

@failing.schedule("* * * * * *", name="bad", tz="Europe/Berlin", catch_up="last")
def bad():
    raise ValueError("no such table")

@awaited.schedule("* * * * * *", name="quick")
async def quick(scheduled_at):
    Path("awaited").touch()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    return tmp_path


@pytest.mark.fault("F37")
def test_a_signal_ends_it_when_what_is_running_has_ended(folder: Path) -> None:
    runner = start(folder, "schedule", "app:once")
    until(lambda: any(folder.glob("begun-*")))
    runner.send_signal(signal.SIGTERM)
    code, out, err = finish(runner)
    assert code == 0
    assert (folder / "ended").exists()
    assert len(list(folder.glob("begun-*"))) == 1
    lines = out.decode().splitlines()
    assert lines[0].startswith("onceward schedule: 1 on sqlite:///")
    assert lines[1].startswith("onceward schedule: long 20")
    assert lines[1].endswith("Z: done")
    assert lines[2:] == ["onceward schedule: stopped"]
    assert err.decode() == "onceward: SIGTERM: starting nothing more; waiting for what is running\n"
    with Once(f"sqlite:///{folder}/jobs.db") as once:
        assert once.stats().total("executed", "default/schedule:long") == 1, "it counts by default"


def test_a_second_signal_ends_it_immediately(folder: Path) -> None:
    runner = start(folder, "schedule", "app:once")
    until(lambda: any(folder.glob("begun-*")))
    runner.send_signal(signal.SIGINT)
    assert runner.stderr is not None
    assert b"SIGINT" in runner.stderr.readline()
    runner.send_signal(signal.SIGINT)
    code, _, err = finish(runner)
    assert code == 128 + signal.SIGINT
    assert b"exiting immediately" in err
    assert not (folder / "ended").exists()


def test_async_applications_and_lines_of_json(folder: Path) -> None:
    runner = start(folder, "schedule", "-o", "json", "app:awaited")
    until((folder / "awaited").exists)
    runner.send_signal(signal.SIGTERM)
    code, out, _ = finish(runner)
    assert code == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert {one["schedule"] for one in events} == {"quick"}
    assert {one["event"] for one in events} == {"executed"}
    assert {(one["late"], one["attempt"]) for one in events} == {(False, 1)}
    with Once(f"sqlite:///{folder}/jobs.db") as once:
        assert once.stats().total("executed", "awaited/schedule:quick") == len(events)


def test_a_failure_is_reported_with_its_traceback_and_the_runner_continues(folder: Path) -> None:
    runner = start(folder, "schedule", "app:failing")
    assert runner.stdout is not None
    lines = [runner.stdout.readline().decode() for _ in range(3)]
    runner.send_signal(signal.SIGTERM)
    code, _, err = finish(runner)
    assert code == 0
    assert all(line.endswith("Z: failed: ValueError: no such table\n") for line in lines[1:])
    assert b"Traceback" in err


def test_the_schedules_are_listed(folder: Path) -> None:
    code, out, _ = process(folder, "schedule", "app:failing", "--list")
    assert code == 0
    titles, row = out.decode().splitlines()
    assert titles.split() == ["NAME", "PATTERN", "TZ", "NEXT", "OVERLAP", "CATCH_UP"]
    assert row.split("  ")[0] == "bad"
    assert "Europe/Berlin" in row
    code, out, _ = process(folder, "schedule", "app:failing", "--list", "-o", "json")
    assert [(one["name"], one["overlap"], one["catch_up"]) for one in json.loads(out)] == [("bad", "skip", "last")]


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("app", "is not the path of an object"),
        ("app:nothing", "has no 'nothing'"),
        ("app:APP", "has no 'APP'"),
        ("app:time", "is not a Once or AsyncOnce"),
        ("app:empty", "has no schedules"),
        ("nowhere_at_all:once", "cannot be imported"),
    ],
)
def test_an_invalid_application_is_one_line_and_exit_code_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, word: str
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "app", raising=False)
    result = call("schedule", target)
    assert result.exit_code == 2
    assert word in line(result)
    sys.modules.pop("app", None)


def test_a_module_that_is_there_and_breaks_shows_where(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "breaks.py").write_text("import nothing_that_is_there\n")
    result = call("schedule", "breaks:once")
    assert result.exit_code == 2
    assert "breaks.py" in result.stderr
    assert "cannot be imported" in result.stderr.splitlines()[-1]


@pytest.mark.mission("C3")
def test_three_runners_one_of_them_killed_run_each_second_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.schedule"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 doubled, 0 lost" in done.stdout
    assert "exit codes [0, 0]" in done.stdout
