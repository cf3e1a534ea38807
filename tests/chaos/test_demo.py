"""The demo keeps its word, and its audit can fail."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo.audit import audit, create_table
from examples.demo.crew import plan_kills
from examples.demo.traffic import make_traffic

ROOT = Path(__file__).resolve().parents[2]


def demo(*arguments: str) -> tuple[int, dict[str, int], str]:
    """Exit status, the figures of the audit, and everything that was printed."""
    run = subprocess.run(
        [sys.executable, "-m", "examples.demo", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )
    figures = {name: int(count) for name, count in re.findall(r"^  (\w+) +(\d+)$", run.stdout, re.MULTILINE)}
    return run.returncode, figures, run.stdout + run.stderr


@pytest.mark.mission("A7", "B2")
@pytest.mark.fault("F31", "F71")
def test_workers_killed_at_random_charge_each_order_once() -> None:
    status, figures, said = demo("--quick")
    assert figures == {"orders": 240, "rows": 240, "duplicates": 0, "lost": 0}, said
    assert status == 0, said
    assert re.search(r"[456] workers were killed", said), said
    assert "\x1b" not in said, "a pipe gets plain lines"


def test_the_same_traffic_without_onceward_fails_the_audit() -> None:
    status, figures, said = demo("--quick", "--unguarded")
    assert figures["duplicates"] > 0, said
    assert status == 1
    assert "This is the point" in said


def test_the_audit_sees_duplicates_losses_and_wrong_amounts(tmp_path: Path) -> None:
    database = tmp_path / "demo.db"
    create_table(database)
    connection = sqlite3.connect(database)
    with connection:
        connection.executemany("INSERT INTO charges VALUES (?, ?, 0)", [(1, 100), (1, 100), (2, 250)])
    found = audit(database, {1: 100, 2: 200, 3: 300})
    assert (found.rows, found.duplicates, found.lost, found.wrong) == (3, 1, 1, 1)
    assert not found.passed
    with connection:
        connection.execute("DELETE FROM charges")
        connection.executemany("INSERT INTO charges VALUES (?, ?, 0)", [(1, 100), (2, 200), (3, 300)])
    connection.close()
    assert audit(database, {1: 100, 2: 200, 3: 300}).passed


def test_the_traffic_has_every_order_duplicates_and_no_order_in_it() -> None:
    traffic = make_traffic(5_000, seed=1)
    delivered = [delivery.order_id for delivery in traffic.deliveries]
    assert len(delivered) == 5_000
    assert set(delivered) == set(traffic.orders)
    assert len(traffic.orders) == 2_000
    first_time = list(dict.fromkeys(delivered))
    assert first_time != sorted(first_time), "earlier orders are overtaken by later ones"
    assert make_traffic(5_000, seed=1) == traffic
    assert make_traffic(5_000, seed=2) != traffic


def test_kills_come_from_the_seed_and_all_fall_into_the_run() -> None:
    kills = plan_kills(24, 5_000, 4, seed=1)
    assert kills == plan_kills(24, 5_000, 4, seed=1) != plan_kills(24, 5_000, 4, seed=2)
    assert len(kills) == 24
    assert all(0 < kill.after < 5_000 and 0 <= kill.delay <= 0.02 for kill in kills)
    assert {kill.victim for kill in kills} == {0, 1, 2, 3}
