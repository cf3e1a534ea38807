"""Calling the command: in this process where that is enough, as real processes where that is the point."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from onceward.cli import acting, checkup, reading, running
from onceward.cli.program import program

COMMANDS = (acting, checkup, reading, running)  # importing them is what adds them


def call(*words: object) -> Result:
    """The command in this process, its output captured (and so piped: JSON unless asked otherwise)."""
    return CliRunner().invoke(program, [str(word) for word in words], prog_name="onceward")


def line(result: Result) -> str:
    """The one line on stderr."""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return lines[0]


def environment() -> dict[str, str]:
    """Ours, without what would decide instead of the command."""
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
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


def process(folder: Path, *words: object) -> tuple[int, bytes, bytes]:
    return finish(start(folder, *words))


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """A zombie is dead: only its parent has not looked yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
