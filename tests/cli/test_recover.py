"""`onceward recover`: concurrent real workers finish the work of real processes that were killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onceward import Once
from tests.cli.calls import call, environment, finish, has_handler, process, start, until

APP = """
import os, sys, time
from pathlib import Path
from onceward import AsyncOnce, Once
from onceward.sagas import Step

once = Once("sqlite:///jobs.db", app="shop", lease="1s")
awaited = AsyncOnce("sqlite:///jobs.db", app="awaited", lease="1s")
empty = Once("sqlite:///jobs.db")

def seen(name):
    with open("log", "a") as log:
        log.write(name + "\\n")

@once(key="work:{n}", store_input=True, name="work")
def work(n):
    seen(f"work {n}")
    if os.environ.get("DIE"):
        os.kill(os.getpid(), 9)

@once(key="plain:{n}", name="plain")
def plain(n):
    raise ValueError("not kept")

def first(step):
    seen("first")
    return "one"

def second(step):
    seen("second")
    if os.environ.get("DIE"):
        os.kill(os.getpid(), 9)

saga = once.saga("saga", Step("first", first, undo=first), Step("second", second, kind="pivot"), key="saga:{n}")

@awaited(key="work:{n}", store_input=True, name="work")
async def later(n):
    seen(f"awaited {n}")
    if os.environ.get("DIE"):
        os.kill(os.getpid(), 9)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    return tmp_path


def die(folder: Path, code: str) -> None:
    """Run this code in a process that is killed in the middle."""
    done = subprocess.run(
        [sys.executable, "-c", f"import asyncio, app; {code}"],
        cwd=folder,
        env={**environment(), "DIE": "1", "PYTHONPATH": f"{folder}:{':'.join(sys.path)}"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def log(folder: Path) -> list[str]:
    return (folder / "log").read_text(encoding="utf-8").splitlines()


@pytest.mark.fault("F30")
def test_work_of_killed_processes_is_finished_and_the_rest_listed(folder: Path) -> None:
    die(folder, "app.plain.outcome(1); app.once.run('x', len, [1]); app.saga(n=1)")
    die(folder, "app.work(1)")

    def idle() -> bool:
        _, out, err = process(folder, "recover", "app:once", "--once", "-o", "json")
        assert b"Traceback" not in err
        lines.extend(json.loads(line) for line in out.decode().splitlines())
        return lines[-1]["running"] == lines[-1]["waiting"] == 0

    lines: list[dict[str, object]] = []
    until(idle, 60)
    recovered = {line["key"]: line["outcome"] for line in lines if line["event"] == "recovered"}
    assert recovered == {"work:1": "executed", "saga:1": "executed"}
    summary = lines[-1]
    assert summary["needs_redelivery"] == [{"key": "plain:1", "scope": "shop/plain", "state": "FAILED"}]
    assert summary["needing_redelivery"] == 1
    assert sorted(log(folder)) == ["first", "second", "second", "work 1", "work 1"]
    code, out, _ = process(folder, "recover", "app:once", "--once")
    assert code == 1
    assert "     1 need a redelivery: their input was not stored" in out.decode()
    assert "needs a redelivery: plain:1 in shop/plain (FAILED)" in out.decode()


def test_two_workers_run_until_they_are_stopped(folder: Path) -> None:
    for number in (1, 2, 3):
        die(folder, f"app.work({number})")
    workers = [start(folder, "recover", "app:once", "--every", "50ms") for _ in range(2)]
    try:
        until(lambda: len(log(folder)) == 6 and all(has_handler(worker.pid, signal.SIGTERM) for worker in workers))
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
    except BaseException:
        for worker in workers:
            worker.kill()
        raise
    finally:
        ends = [finish(worker) for worker in workers]
    assert [code for code, _, _ in ends] == [0, 0]
    said = "".join(out.decode() for _, out, _ in ends)
    assert said.count("done, attempt 2") == 3
    assert sorted(log(folder)) == ["work 1", "work 1", "work 2", "work 2", "work 3", "work 3"]
    with Once(f"sqlite:///{folder}/jobs.db") as once:
        assert once.stats().total("executed") == 3, "they count by default"
    assert all("SIGTERM: starting nothing more" in err.decode() for _, _, err in ends)


def test_an_async_application_is_recovered_on_a_loop(folder: Path) -> None:
    die(folder, "asyncio.run(app.later(1))")

    def idle() -> bool:
        code, out, err = process(folder, "recover", "app:awaited", "--once", "-o", "json")
        assert code == 0, err
        return bool(json.loads(out.decode().splitlines()[-1])["done"])

    until(idle, 60)
    assert log(folder) == ["awaited 1", "awaited 1"]


def test_an_invalid_call_is_reported_in_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    nothing = call("recover", "app:empty", "--once")
    assert nothing.exit_code == 2
    assert "has declared no work that stores its input" in nothing.stderr
    assert call("recover", "app").exit_code == 2
    assert "Traceback" not in call("recover", "app:work").stderr
    assert call("recover", "app:once", "--once", "--every", "soon").exit_code == 0


@pytest.mark.finding("N25")
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_failure_is_shown_with_its_message_and_place(folder: Path, output: str) -> None:
    die(folder, "app.work(7)")
    with (folder / "app.py").open("a", encoding="utf-8") as app:
        app.write("\ndef seen(name):\n    raise ValueError('the disk is gone')\n")
    said = b""

    def recovered() -> bool:
        nonlocal said
        said = process(folder, "recover", "app:once", "--once", "-o", output)[2]
        return bool(said)

    until(recovered)  # the lease of the killed worker must expire first
    assert said.count(b"ValueError: the disk is gone") == 1
    assert b'app.py", line' in said
    assert b"failed work:7 [" not in said, "the result says it already"
