"""How far a call travels does not grow: `python -m bench.walk` stays within the limits that were reached."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from bench.walk import Walk

ROOT = Path(__file__).resolve().parents[2]

LIMITS = {
    "memory, first call": Walk(calls=61, files=19, depth=11),
    "memory, replay": Walk(calls=20, files=13, depth=6),
    "sqlite, first call": Walk(calls=82, files=23, depth=13),  # up to four fewer if no check of the file is due
    "sqlite, replay": Walk(calls=21, files=14, depth=6),
    "http, first call": Walk(calls=98, files=28, depth=11),
    "http, replay": Walk(calls=45, files=19, depth=6),
}
"""The figures on Python 3.11. Later versions make fewer calls, because they inline comprehensions.

Lower a limit when a change makes a call shorter. If a limit must grow, say in the commit what it buys.
"""


@cache
def measured() -> dict[str, Walk]:
    """Walk in a process of its own: what other tests have loaded or cached must not count."""
    command = [sys.executable, "-m", "bench.walk"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = re.findall(r"^(.+?) +(\d+) calls +(\d+) files +(\d+) deep$", printed, re.MULTILINE)
    return {case: Walk(int(calls), int(files), int(depth)) for case, calls, files, depth in lines}


@pytest.mark.finding("N60")
@pytest.mark.parametrize("case", LIMITS)
def test_a_call_travels_no_further_than_its_limit(case: str) -> None:
    walk, limit = measured()[case], LIMITS[case]
    assert 0 < walk.calls <= limit.calls, f"python -m bench.walk --list {case.partition(',')[0]}"
    assert 0 < walk.files <= limit.files
    assert 0 < walk.depth <= limit.depth


def test_every_case_that_needs_no_server_has_a_limit() -> None:
    assert set(measured()) == set(LIMITS)


def test_the_page_about_speed_has_the_same_figures() -> None:
    page = (ROOT / "docs" / "explain" / "speed.md").read_text("utf-8")
    for case, limit in LIMITS.items():
        assert f"| {case} | {limit.calls} | {limit.files} | {limit.depth} |" in page
