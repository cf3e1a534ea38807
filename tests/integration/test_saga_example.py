"""`python -m examples.saga`: its output is the same every time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.pages import ROOT


@pytest.mark.parametrize("name", ["saga", "schedule"])
def test_the_help_option_prints_help_and_runs_nothing(name: str) -> None:
    for asked, code, said in (["--help"], 0, "usage: "), (["nonsense"], 2, "unrecognized arguments: nonsense"):
        command = [sys.executable, "-m", f"examples.{name}", *asked]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == code
        assert said in done.stdout + done.stderr
        assert "document 1" not in done.stdout
        assert "runner" not in done.stdout.replace("Three runners", "")


@pytest.mark.mission("A6")
@pytest.mark.fault("F74", "F30")
def test_a_file_and_a_row_or_neither_through_crashes() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.saga"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "document 1: executed",
        "document 2: failed",
        "document 3: its worker was killed",
        "document 4: its worker was killed",
    ]
    files = "1_ACME_2026-01-31.pdf, 3_ACME_2026-01-31.pdf, 4_ACME_2026-01-31.pdf"
    assert lines[-4:] == [
        f"  files {files}",
        f"  rows  {files}",
        "document:1 COMPLETED, document:2 FAILED, document:3 COMPLETED, document:4 COMPLETED",
        "right: a file and a row, or neither",
    ]
