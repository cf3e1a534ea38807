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
A_SELECTION = ("tests/unit/test_window.py", "tests/unit/test_policy.py")
COMMAND = ("-m", "pytest", "-q", "-n", "4", "--dist", "worksteal", "-p", "randomly", "--randomly-dont-reset-seed")
"""The seed of `random` is not reset: tests that share a server use it to make different names."""


def under_load(*, small: bool) -> Section:
    """Run the suite twice. pytest-randomly, which `make soak` installs, shuffles it each time."""
    chosen = A_SELECTION if small else ()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    started = time.monotonic()
    figures: list[tuple[str, object]] = []
    passed = True
    try:
        for number in (1, 2):
            command = [sys.executable, *COMMAND, *chosen]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
            passed = passed and done.returncode == 0
            last = done.stdout.splitlines()[-1] if done.stdout else ""
            counted = re.findall(r"(\d+) (passed|failed|errors?)\b", last)
            figures += [(f"run {number}: tests {word}", int(count)) for count, word in counted]
    finally:
        for one in busy:
            one.kill()
            one.wait()
    figures.append(("seconds", round(time.monotonic() - started)))
    return Section("The suite under load", f"python {' '.join((*COMMAND, *chosen))}", passed, figures)
