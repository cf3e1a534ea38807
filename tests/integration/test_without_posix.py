"""Onceward works where there is no fork, no SIGKILL and no fcntl, as on Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients import TOO_LONG

ROOT = Path(__file__).parents[2]


def without_posix(*words: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `tests.integration.without_posix` in a process of its own."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.integration.without_posix", *words],
        env=os.environ | {"PYTHONPATH": path, "USERNAME": "someone", "COMPUTERNAME": "desktop"},
        capture_output=True,
        text=True,
        timeout=3 * TOO_LONG,
        check=False,
    )
    assert done.returncode == expected, done.stderr
    assert "Traceback (most recent call last)" not in done.stderr
    return done


def url_of(store: str, folder: Path) -> str:
    return f"sqlite:///{folder}/once.db" if store == "file" else store


@pytest.mark.finding("N32")
@pytest.mark.parametrize("work", ["sync", "async"])
@pytest.mark.parametrize("store", ["memory://", "sqlite://:memory:", "file"])
def test_decorators_blocks_heartbeats_and_locks_work(work: str, store: str, tmp_path: Path) -> None:
    without_posix(work, url_of(store, tmp_path))


@pytest.mark.finding("N32")
def test_the_command_works_on_a_file(tmp_path: Path) -> None:
    url = url_of("file", tmp_path)
    without_posix("cli", "migrate", "--yes", "--store", url)
    without_posix("sync", url)
    assert '"block"' in without_posix("cli", "ls", "--store", url, "-o", "json").stdout
    assert "COMPLETED" in without_posix("cli", "explain", "block", "--store", url).stdout
    assert "someone@" in without_posix("cli", "audit", "--store", url).stdout
    without_posix("cli", "doctor", "--store", url)


@pytest.mark.finding("N32")
def test_commands_that_need_processes_say_so(tmp_path: Path) -> None:
    words = ("run", "--key", "k", "--store", url_of("file", tmp_path), "--", "true")
    assert "needs process groups, which this system does not have" in without_posix("cli", *words, expected=2).stderr
    storm = without_posix("storm", "examples.outreach.storm:SYSTEM", "--deliveries", "10", expected=1)
    assert "a storm forks and kills processes, which this system cannot do" in storm.stderr
