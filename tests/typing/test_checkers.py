"""mypy --strict and pyright read `cases/`: types are kept, and every error that is expected there is really one.

An expected error carries an ignore for each checker. An ignore that nothing needs is an error itself, so a type that
got weaker shows as much as one that broke.
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
    # The build of pyright that is installed is the one we want: no word about newer ones.
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def mypy(*files: Path) -> tuple[int, str]:
    # A cache of its own: two runs of mypy on one cache at the same time disturb each other.
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
    """A wrong expectation fails, so that green is no accident of how the checkers are called."""
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
