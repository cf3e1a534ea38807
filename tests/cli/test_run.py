"""`onceward run`: runs a command once per key; every caller gets its output."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from onceward import Once
from onceward.cli import run as running
from onceward.operations.block import ClaimBlock
from onceward.protocol.policy import Policy
from onceward.protocol.record import RecordState
from tests.cli.calls import alive, call, finish, has_handler, line, process, start, until

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs process groups")

COUNTING = "echo ran >> runs; printf 'out\\0\\377'; printf err >&2; sleep 0.3"


def runs(folder: Path) -> int:
    file = folder / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


def state(folder: Path, key: str = "k") -> RecordState:
    with Once(f"sqlite:///{folder}/onceward.db") as once:
        entry = once.read(key, name="command")
        assert entry is not None
        return entry.state


@pytest.mark.mission("A1")
def test_twenty_concurrent_calls_run_it_one_time_and_all_get_the_same_bytes(tmp_path: Path) -> None:
    callers = [start(tmp_path, "run", "--key", "k", "--", "sh", "-c", COUNTING) for _ in range(20)]
    answers = [finish(caller) for caller in callers]
    assert answers == [(0, b"out\0\xff", b"err")] * 20
    assert runs(tmp_path) == 1


def test_the_exit_code_of_the_first_run_is_replayed_with_keep_failures(tmp_path: Path) -> None:
    words = ("run", "--key", "k", "--keep-failures", "--", "sh", "-c", "echo ran >> runs; echo why >&2; exit 7")
    assert process(tmp_path, *words) == (7, b"", b"why\n")
    assert process(tmp_path, *words) == (7, b"", b"why\n")
    assert runs(tmp_path) == 1


def test_a_failure_is_run_again_by_the_next_call(tmp_path: Path) -> None:
    words = ("run", "--key", "k", "--", "sh", "-c", "echo ran >> runs; test $(wc -l < runs) -ge 2")
    code, _, err = process(tmp_path, *words)
    assert (code, state(tmp_path)) == (1, RecordState.FAILED)
    assert err == b"onceward: the command failed with exit code 1; the next call runs it again\n"
    assert process(tmp_path, *words)[0] == 0
    assert process(tmp_path, *words)[0] == 0
    assert (runs(tmp_path), state(tmp_path)) == (2, RecordState.COMPLETED)


def test_output_arrives_while_the_command_still_runs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    caller = start(tmp_path, "run", "--key", "k", "--", "sh", "-c", "echo early; read x < gate")
    assert caller.stdout is not None
    assert caller.stdout.readline() == b"early\n"
    (tmp_path / "gate").write_text("go\n")
    assert finish(caller)[0] == 0


def test_what_exceeds_the_cap_is_streamed_but_a_replay_says_that_it_is_missing(tmp_path: Path) -> None:
    words = ("run", "--key", "k", "--max-output", "4", "--", "printf", "123456")
    assert process(tmp_path, *words) == (0, b"123456", b"")
    code, out, err = process(tmp_path, *words)
    assert (code, out) == (79, b"1234")
    assert b"2 bytes of stdout and 0 of stderr are missing" in err


def test_a_megabyte_of_binary_output_comes_back_byte_for_byte(tmp_path: Path) -> None:
    script = "import random, sys; sys.stdout.buffer.write(random.randbytes(1 << 20))"
    words = ("run", "--key", "k", "--", sys.executable, "-c", script)
    first, second = process(tmp_path, *words), process(tmp_path, *words)
    assert len(first[1]) == 1 << 20
    assert first == second


def test_another_command_under_the_same_key_is_refused_unless_the_key_alone_counts(tmp_path: Path) -> None:
    assert process(tmp_path, "run", "--key", "k", "--", "echo", "one")[0] == 0
    code, out, err = process(tmp_path, "run", "--key", "k", "--", "echo", "two")
    assert (code, out) == (65, b"")
    assert b"--any-command" in err
    assert process(tmp_path, "run", "--key", "k", "--any-command", "--", "echo", "two")[:2] == (0, b"one\n")


def test_no_wait_says_that_it_is_running_and_waiting_too_short_says_so_too(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    owner = start(tmp_path, "run", "--key", "k", "--", "sh", "-c", "echo begun; read x < gate")
    assert owner.stdout is not None
    owner.stdout.readline()
    for patience in (("--no-wait",), ("--wait", "50ms")):
        code, out, err = process(
            tmp_path, "run", "--key", "k", *patience, "--", "sh", "-c", "echo begun; read x < gate"
        )
        assert (code, out) == (75, b"")
        assert err.startswith(b"onceward: ")
        assert err.count(b"\n") == 1
    (tmp_path / "gate").write_text("go\n")
    assert finish(owner)[0] == 0


def test_a_command_that_is_not_there_fails_like_in_a_shell_and_may_be_run_later(tmp_path: Path) -> None:
    code, _, err = process(tmp_path, "run", "--key", "k", "--after-crash", "park", "--", "./later")
    assert (code, err) == (127, b"onceward: ./later: No such file or directory\n")
    (tmp_path / "later").write_text("#!/bin/sh\necho now\n")
    code, _, err = process(tmp_path, "run", "--key", "k", "--after-crash", "park", "--", "./later")
    assert (code, err) == (126, b"onceward: ./later: Permission denied\n")
    (tmp_path / "later").chmod(0o755)
    assert process(tmp_path, "run", "--key", "k", "--after-crash", "park", "--", "./later")[:2] == (0, b"now\n")


ORPHANS = "sh -c 'echo $$ > inner; exec sleep 60' & echo $$ > outer; echo ran >> runs; echo begun; wait"


def killed_owner(folder: Path, *settings: str) -> None:
    """Kill (-9) an owner whose command has a child process: none of the three survives."""
    owner = start(folder, "run", "--key", "k", "--lease", "1s", *settings, "--", "sh", "-c", ORPHANS)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"begun\n"
    until(lambda: (folder / "inner").exists() and (folder / "inner").read_text().endswith("\n"))
    pids = [int((folder / name).read_text()) for name in ("outer", "inner")]
    assert all(map(alive, pids))
    owner.send_signal(signal.SIGKILL)
    finish(owner)
    until(lambda: not any(map(alive, pids)))


@pytest.mark.fault("F3")
@pytest.mark.finding("N27")
def test_the_command_dies_with_its_owner_and_runs_again_once_the_lease_is_over(tmp_path: Path) -> None:
    killed_owner(tmp_path)
    code, out, _ = process(tmp_path, "run", "--key", "k", "--any-command", "--lease", "1s", "--", "echo", "again")
    assert (code, out, runs(tmp_path)) == (0, b"again\n", 1)


@pytest.mark.fault("F3")
def test_with_park_a_killed_owner_leaves_a_record_for_a_person(tmp_path: Path) -> None:
    killed_owner(tmp_path, "--after-crash", "park")
    words = ("run", "--key", "k", "--any-command", "--after-crash", "park", "--", "echo", "again")
    code, out, err = process(tmp_path, *words)
    assert (code, out) == (76, b"")
    assert b"onceward resolve" in err
    assert process(tmp_path, "resolve", "k", "--not-applied", "--yes", "--why", "looked")[0] == 0
    assert process(tmp_path, *words)[:2] == (0, b"again\n")


def test_a_command_that_outlives_its_lease_is_not_taken_over(tmp_path: Path) -> None:
    words = ("run", "--key", "k", "--lease", "2s", "--", "sh", "-c", "echo ran >> runs; sleep 3; echo done")
    first = start(tmp_path, *words)
    until(lambda: runs(tmp_path) == 1)
    assert process(tmp_path, *words)[:2] == (0, b"done\n")
    assert finish(first)[:2] == (0, b"done\n")
    assert runs(tmp_path) == 1


ENDS_WELL = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("begun", flush=True)
time.sleep(60)
"""


def test_a_signal_is_passed_on_and_a_command_that_ends_well_counts_as_done(tmp_path: Path) -> None:
    caller = start(tmp_path, "run", "--key", "k", "--", sys.executable, "-c", ENDS_WELL)
    assert caller.stdout is not None
    caller.stdout.readline()
    caller.terminate()
    assert caller.wait(60) == 0
    assert state(tmp_path) is RecordState.COMPLETED
    finish(caller)


@pytest.mark.parametrize(
    ("policy", "code", "left"), [("rerun", 143, RecordState.FAILED), ("park", 76, RecordState.PARKED)]
)
def test_a_command_that_dies_of_the_signal_is_failed_or_parked(
    tmp_path: Path, policy: str, code: int, left: RecordState
) -> None:
    caller = start(tmp_path, "run", "--key", "k", "--after-crash", policy, "--", "sh", "-c", "echo begun; sleep 60")
    assert caller.stdout is not None
    caller.stdout.readline()
    caller.terminate()
    assert finish(caller)[0] == code
    assert state(tmp_path) is left


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs /proc to see whether a process handles a signal"
)
@pytest.mark.parametrize("delay", [0.0, 0.02, 1.0], ids=["at once", "soon", "while it waits"])
def test_a_caller_that_waits_can_be_stopped_and_nothing_is_run(tmp_path: Path, delay: float) -> None:
    os.mkfifo(tmp_path / "gate")
    words = ("run", "--key", "k", "--", "sh", "-c", "echo ran >> runs; read x < gate")
    owner = start(tmp_path, *words)
    until(lambda: runs(tmp_path) == 1)
    waiting = start(tmp_path, "--store", "sqlite:///onceward.db", *words)
    until(lambda: has_handler(waiting.pid, signal.SIGTERM))
    time.sleep(delay)
    waiting.terminate()
    code, _, err = finish(waiting)
    assert (code, err) == (143, b"onceward: stopped by SIGTERM; nothing was run\n")
    (tmp_path / "gate").write_text("go\n")
    assert finish(owner)[0] == 0


def test_a_signal_before_the_store_is_opened_is_reported_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def signalled(*_: object, **__: object) -> Once:
        os.kill(os.getpid(), signal.SIGTERM)
        return Once("memory://")

    monkeypatch.setattr(running, "Once", signalled)
    result = call("run", "--key", "k", "--", "touch", "ran")
    assert result.exit_code == 128 + signal.SIGTERM
    assert line(result) == "onceward: stopped by SIGTERM; nothing was run"


def test_a_store_that_is_silent_when_the_command_ends_is_reported_and_the_record_left_to_expire(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    times = ("--lease", "600ms", "--settle-timeout", "600ms")
    caller = start(tmp_path, "run", "--key", "k", *times, "--", "sh", "-c", "echo begun; read x < gate; echo done")
    assert caller.stdout is not None
    assert caller.stdout.readline() == b"begun\n"
    other = sqlite3.connect(tmp_path / "onceward.db", isolation_level=None, timeout=20)
    other.execute("BEGIN IMMEDIATE")
    (tmp_path / "gate").write_text("go\n")
    code, out, err = finish(caller)
    other.close()
    assert (code, out) == (70, b"done\n")
    assert b"did not confirm the result" in err
    assert err.count(b"\n") == 1
    assert state(tmp_path) is RecordState.PENDING


def test_a_second_signal_stops_waiting_for_a_silent_store(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    command = "echo $$; read x < gate; echo done"
    words = ("run", "--key", "k", "--lease", "6s", "--", "sh", "-c", command)
    caller = start(tmp_path, *words)
    assert caller.stdout is not None
    shell = int(caller.stdout.readline())
    other = sqlite3.connect(tmp_path / "onceward.db", isolation_level=None, timeout=60)
    other.execute("BEGIN IMMEDIATE")
    (tmp_path / "gate").write_text("go\n")
    assert caller.stdout.readline() == b"done\n"
    until(lambda: not alive(shell))
    time.sleep(0.3)  # until onceward has seen the command end: earlier signals are passed on to the command

    def stopped() -> bool:
        caller.terminate()
        return caller.poll() is not None

    until(stopped)
    other.close()
    code, _, err = finish(caller)
    assert (code, err.count(b"\n")) == (70, 1)
    assert err.startswith(b"onceward: stopped by SIGTERM")


def test_standard_input_reaches_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onceward.cli", "run", "--key", "k", "--", "cat"],
        cwd=tmp_path, input=b"some\0bytes", capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"some\0bytes")


def test_when_the_reader_stops_the_command_still_ends_and_its_output_is_kept(tmp_path: Path) -> None:
    words = ("run", "--key", "k", "--", "sh", "-c", "echo first; read x < gate; echo second")
    os.mkfifo(tmp_path / "gate")
    caller = start(tmp_path, *words)
    assert caller.stdout is not None
    assert caller.stdout.readline() == b"first\n"
    caller.stdout.close()
    (tmp_path / "gate").write_text("go\n")
    assert caller.wait(60) == 0
    assert caller.stderr is not None
    assert caller.stderr.read() == b""
    caller.stderr.close()
    assert process(tmp_path, *words)[:2] == (0, b"first\nsecond\n")


def test_closed_streams_do_not_disturb_the_command(tmp_path: Path) -> None:
    shell = f"{sys.executable} -m onceward.cli run --key k -- sh -c 'echo out; echo ran >> runs' <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", shell], cwd=tmp_path, check=False).returncode == 0
    assert process(tmp_path, "run", "--key", "k", "--any-command", "--", "true") == (0, b"out\n", b"")
    assert runs(tmp_path) == 1


@pytest.mark.parametrize("key", ["", b"\xff"], ids=["empty", "no text"])
def test_a_key_that_names_nothing_is_refused(tmp_path: Path, key: str | bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onceward.cli", "run", "--key", key, "--", "touch", "ran"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("store", ["memory://", "sqlite://:memory:"])
def test_a_store_that_dies_with_this_process_is_refused(store: str) -> None:
    result = call("run", "--store", store, "--key", "k", "--", "true")
    assert result.exit_code == 2
    assert "exists only inside one process" in line(result)


def test_an_invalid_duration_is_refused_before_anything_runs(tmp_path: Path) -> None:
    code, _, err = process(tmp_path, "run", "--key", "k", "--lease", "soon", "--", "touch", "ran")
    assert code == 2
    assert b"lease is not a duration: 'soon'" in err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("flags", "seconds"),
    [((), 600), (("--lease", "1h"), 3600), (("--lease", "1h", "--settle-timeout", "20m"), 1200)],
)
def test_the_result_is_sent_for_the_longer_of_the_lease_and_ten_minutes(
    flags: tuple[str, ...], seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    times: list[int] = []

    class RecordingOnce(Once):
        def claim(self, key: Any, **settings: Any) -> ClaimBlock:
            chosen: Any = {name: settings[name] for name in ("lease", "settle_timeout")}
            times.append(Policy().with_settings(chosen).settle_time)
            return super().claim(key, **settings)

    monkeypatch.setattr(running, "Once", RecordingOnce)
    assert call("run", "--key", "k", *flags, "--", "true").exit_code == 0
    assert times == [seconds * 1_000_000]
