"""Real kills: SIGKILL at any statement, and the resumed import ends as if nothing had happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.imports.victims import BATCH

STRIDE = 3  # every third statement; `make soak` kills at every one


@pytest.mark.mission("D3")
@pytest.mark.fault("F30", "F31")
def test_killed_at_any_statement_and_resumed_nothing_is_redone_doubled_or_lost(tmp_path: Path) -> None:
    assert BATCH < 14, "several batches"
    command = [sys.executable, "-m", "tests.imports.victims", str(tmp_path), str(STRIDE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "differed 0" in done.stdout
