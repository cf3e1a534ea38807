"""mypy --strict and pyright read `cases/`: types are kept, and every error that is expected there is really one.

An expected error carries an ignore for each checker. An unused ignore is an error itself, so a type that
got weaker is noticed as well as one that broke.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CASES = sorted((HERE / "cases").glob("*.py"))


def check(*command: str) -> tuple[int, str]:
    # Use the installed build of pyright, and do not warn about newer ones.
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def mypy(*files: Path) -> tuple[int, str]:
    # A cache of its own: two concurrent runs of mypy on one cache interfere with each other.
    return check("mypy", "--strict", "--cache-dir=.mypy_cache/cases", *map(str, files))


def pyright(*files: Path) -> tuple[int, str]:
    return check("pyright", "--pythonpath", sys.executable, *(map(str, files) if files else ("-p", str(HERE))))


@pytest.mark.mission("B3")
def test_mypy_strict_sees_the_types_that_are_promised() -> None:
    code, said = mypy(*CASES)
    assert code == 0, said


@pytest.mark.mission("B3")
def test_pyright_sees_the_types_that_are_promised() -> None:
    code, said = pyright()
    assert code == 0, said
    assert "0 errors" in said


def test_both_checkers_would_notice(tmp_path: Path) -> None:
    """A wrong expectation fails, which proves that the checkers really check these files."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    for code, said in (mypy(wrong), pyright(wrong)):
        assert code == 1, said
        assert "int | None" in said, said


WRONG = """\
from typing import assert_type
from onceward import Once

once = Once("memory://")

@once(on_done="skip")
def work(x: int) -> int:
    return x

assert_type(work(1), int)
"""
