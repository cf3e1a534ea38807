"""The fleet in a storm: workers killed while they apply events, and then the tables read by plain SQL."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from examples.fleet.storm import SYSTEM
from onceward.testing.storm import Plan, Setting, storm
from tests.servers.postgres import Postgres, new_database

PLACE = "examples.fleet.storm:SYSTEM"
PLAN = Plan(deliveries=160, workers=3, kills=3)


@pytest.mark.mission("E2", "E3", "E4", "E6")
@pytest.mark.fault("F31")
def test_on_sqlite_every_state_is_the_newest_and_nothing_was_written_twice() -> None:
    run = storm(PLACE, PLAN)
    assert run.audit.passed, run.audit
    assert (run.audit.expected, run.score.killed) == (run.audit.effects, 3)
    assert min(run.score.executed, run.score.replayed, run.score.stale) > 0, run.score


@pytest.mark.mission("E2", "E3", "E4", "E6")
@pytest.mark.fault("F31")
def test_the_same_on_postgresql(postgres: Postgres) -> None:
    run = storm(PLACE, replace(PLAN, store=new_database(postgres, "fleet_storm")))
    assert run.audit.passed, run.audit
    assert (run.audit.expected, run.score.killed) == (run.audit.effects, 3)


def test_without_the_guard_old_events_are_written_over_new_ones() -> None:
    run = storm(PLACE, replace(PLAN, kills=0, guarded=False))
    assert run.audit.duplicates, "an event was the state, was followed by another, and came back"
    assert run.audit.wrong, "and some of these stayed"


def test_the_audit_notices_a_state_that_is_missing(tmp_path: Path) -> None:
    """It can fail: nothing was delivered, and everything is lost."""
    setting = Setting(folder=str(tmp_path), run="r1")
    with SYSTEM.open(setting):
        events = list(islice(SYSTEM.events(Random(1)), 20))
        audit = SYSTEM.audit(setting, events)
    assert {event.id for event in events} < set(audit.lost)
    assert "document of env prod/service billing" in audit.lost
