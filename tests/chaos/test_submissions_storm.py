"""The storm of examples/submissions: rows and charges are counted, on SQLite and on servers."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from examples.submissions.storm import SYSTEM, table_of
from onceward.testing.storm import Plan, StormSetting, storm
from tests.servers.redis import shared

SUBMISSIONS = "examples.submissions.storm:SYSTEM"


@pytest.mark.mission("B2", "B3", "B5", "B7")
def test_each_submission_has_one_row_and_one_charge_through_kills_and_lost_answers() -> None:
    run = storm(SUBMISSIONS, Plan(deliveries=120, workers=3, kills=3, pauses=1))
    assert run.audit.passed, run.audit
    assert run.audit.effects == run.audit.expected > run.events, "rows and charges"
    assert run.audit.counted["of them repeated"] > 0, "answers got lost on the way"
    assert (run.score.killed, run.score.paused) == (3, 1)


@pytest.mark.mission("B4")
def test_the_same_holds_on_a_server_without_the_rows() -> None:
    """The soak also runs it on PostgreSQL."""
    run = storm(SUBMISSIONS, Plan(deliveries=80, workers=2, kills=3, store=shared().url()))
    assert run.audit.passed, run.audit


def test_an_interrupted_storm_leaves_no_table_behind(tmp_path: Path) -> None:
    setting = StormSetting(folder=str(tmp_path), run="r1")
    with pytest.raises(KeyboardInterrupt), SYSTEM.open(setting):
        assert table_of(setting).rows() == []
        raise KeyboardInterrupt
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        table_of(setting).rows()


def test_written_by_hand_it_charges_twice_and_the_audit_says_so() -> None:
    run = storm(SUBMISSIONS, Plan(deliveries=80, workers=3, kills=0, together=1.0, guarded=False))
    assert any(name.startswith("charge of") for name in run.audit.duplicates), run.audit
    assert any(name.startswith("row of") for name in run.audit.duplicates), run.audit
