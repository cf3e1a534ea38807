"""A part of the soak: the whole suite, in random order, twice in a row, beside two processes that only compute."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from tests.soak_section import Section

ROOT = Path(__file__).parent.parent
BUSY = 2
WITH_LEASES = (
    "tests/unit/test_heartbeat_thread.py",
    "tests/integration/test_faults_leases.py",
    "tests/integration/test_faults_contention.py",
    "tests/integration/test_lock_holders.py",
)
"""Tests with short leases and real threads: the first to fail if a test depends on speed."""

COMMAND = ("-m", "pytest", "-q", "-n", "4", "--dist", "worksteal", "-p", "randomly", "--randomly-dont-reset-seed")
"""The seed of `random` is not reset: tests that share a server use it to make different names."""


def under_load(*, small: bool) -> Section:
    """Run the suite twice. pytest-randomly, which `make soak` installs, shuffles it each time."""
    chosen = WITH_LEASES if small else ()
    started = time.monotonic()
    figures: list[tuple[str, object]] = []
    passed = True
    for number in (1, 2):
        done = run_beside_busy_processes(*COMMAND, *chosen)
        passed = passed and done.returncode == 0
        last = done.stdout.splitlines()[-1] if done.stdout else ""
        counted = re.findall(r"(\d+) (passed|failed|errors?)\b", last)
        figures += [(f"run {number}: tests {word}", int(count)) for count, word in counted]
    figures.append(("seconds", round(time.monotonic() - started)))
    return Section("The suite under load", f"python {' '.join((*COMMAND, *chosen))}", passed, figures)


def run_beside_busy_processes(*command: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments beside processes that only compute. Print its output if it fails."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    finally:
        for one in busy:
            one.kill()
            one.wait()
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    return done
