from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.postgres_workers import run_workers
from tests.servers.postgres import Postgres

SOAKING = os.environ.get("ONCEWARD_HYPOTHESIS_PROFILE") == "soak"
KEYS, KILLS, PAUSES = (10_000, 5, 2) if SOAKING else (160, 1, 1)


@pytest.mark.mission("E2")
@pytest.mark.fault("F31", "F50", "F51", "F52", "F54")
def test_eight_workers_outlive_a_server_that_is_killed_and_paused(own_postgres: Postgres, tmp_path: Path) -> None:
    report = run_workers(own_postgres, tmp_path, keys=KEYS, kills=KILLS, pauses=PAUSES)
    print(report)
    assert report.acknowledged == KEYS, "every delivery was done in the end"
    assert (report.rows, report.most) == (KEYS, 1), "each effect is there, and only once"
    assert report.completed == KEYS, "every acknowledged delivery has a record"
    assert report.failures > 0, "the workers must have noticed a disturbance"
