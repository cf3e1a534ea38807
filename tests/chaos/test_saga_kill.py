"""Sagas killed with SIGKILL before and after every step and every compensation, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.saga_victim import SCENARIOS
from tests.servers.postgres import URL, schema_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "once.db")
    request.getfixturevalue("postgres")
    return f"{os.environ[URL]} {schema_of(tmp_path)}"


def killed_everywhere(database: str, folder: Path, scenario: str) -> list[dict[str, Any]]:
    """Return what was recovered; then a line for each point at which a process was killed, and for one that was not."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.saga_victim", database, str(folder), scenario],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.fault("F74", "F30")
@pytest.mark.mission("A6")
@pytest.mark.parametrize(("scenario", "end", "points"), [("done", "COMPLETED", 28), ("refused", "FAILED", 39)])
def test_killed_anywhere_a_saga_ends_all_done_or_all_undone(
    database: str, tmp_path: Path, scenario: str, end: str, points: int
) -> None:
    recovered, *lines = killed_everywhere(database, tmp_path, scenario)
    assert [line for line in lines if line["fault"] or line["state"] != end] == []
    assert len(lines) == points + 1, "each point once, and once to the end"
    before_the_claim_and_after_the_end = 2
    assert recovered["recovered"] == points - before_the_claim_and_after_the_end


def test_killed_inside_a_step_that_is_neither_repeatable_nor_verifiable_a_saga_waits_for_an_operator(
    database: str, tmp_path: Path
) -> None:
    _, *lines = killed_everywhere(database, tmp_path, "neither")
    assert [line for line in lines if line["fault"]] == []
    assert Counter(line["state"] for line in lines) == {"COMPLETED": len(lines) - 4, "PARKED": 4}
    for line in lines:
        assert line["calls"].count("charge") <= 1, "it was called again"


def test_every_scenario_is_tested() -> None:
    assert set(SCENARIOS) == {"done", "refused", "neither"}
