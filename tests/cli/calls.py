"""Call the command: in this process where that is enough, otherwise as real processes."""

from __future__ import annotations

import contextvars
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from onceward import Once
from onceward.cli.program import load_commands, program
from tests.heartbeats import stop_renewing

load_commands()


def call(*words: object) -> Result:
    """Run the command in this process. Its output is captured, so it is JSON unless a test asks for another format."""
    return CliRunner().invoke(program, [str(word) for word in words], prog_name="onceward")


def as_json(*words: object) -> Any:
    """Return the JSON output of the command."""
    result = call(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def raising(error: Exception) -> Callable[[], None]:
    def raises() -> None:
        raise error

    return raises


def silent_claims(once: Once, leases: dict[str, str], lapse: float = 0.06) -> None:
    """Claim keys as owners elsewhere that stop responding, as if killed. Leases below `lapse` seconds have expired."""
    for key, lease in leases.items():
        silent = once.claim(key, lease=lease, note={"page": "3"})
        contextvars.Context().run(silent.__enter__)
    once.heartbeat.close()  # so that the leases are no longer renewed
    time.sleep(lapse)
    stop_renewing(once.heartbeat)


def line(result: Result) -> str:
    """Return the only line on stderr."""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return lines[0]


def environment() -> dict[str, str]:
    """Return the environment without variables that would change what the command does."""
    ours = ("ONCEWARD_", "PYTHONUNBUFFERED", "NO_COLOR")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def start(folder: Path, *words: object, **settings: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "onceward.cli", *map(str, words)],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **settings,
    )


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    try:
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    return process.returncode, out, err


def process(folder: Path, *words: object) -> tuple[int, bytes, bytes]:
    return finish(start(folder, *words))


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "the condition was never met"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Return whether the process is alive. A zombie counts as dead: its parent has not reaped it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def on_a_terminal(folder: Path, *words: str, typed: bytes = b"", **variables: str) -> tuple[int, bytes]:
    """Run the command on a pseudo-terminal and return what a person would see."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(sys.executable, [sys.executable, "-m", "onceward.cli", *words], {**environment(), **variables})
    seen = b""
    os.write(terminal, typed)
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen


def has_handler(pid: int, number: int) -> bool:
    """Return whether the process has its own handler for the signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)
