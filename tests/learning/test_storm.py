"""The learning records in a storm: on files behind a server that is killed as well, and on PostgreSQL."""

from __future__ import annotations

import pytest

from onceward.testing.storm import Plan, storm
from tests.servers.postgres import Postgres, new_database

SYSTEM = "examples.learning.storm:SYSTEM"
PLAN = Plan(deliveries=100, workers=3, kills=3)


@pytest.mark.mission("D1", "D2")
def test_every_statement_is_stored_once_though_workers_and_the_server_are_killed() -> None:
    run = storm(SYSTEM, PLAN)
    assert run.audit.passed, run.audit
    assert run.score.killed == 3
    assert run.score.replayed > 0
    assert run.score.rejected > 0, "the other one of two statements under one id"
    assert run.audit.counted["kills of the server"] >= 1


@pytest.mark.mission("D1", "D2")
def test_every_statement_is_stored_once_by_workers_on_postgresql(postgres: Postgres) -> None:
    run = storm(
        SYSTEM, Plan(deliveries=120, workers=3, kills=3, pauses=1, store=new_database(postgres, "learning_storm"))
    )
    assert run.audit.passed, run.audit
    assert run.score.replayed > 0
    assert (run.score.killed, run.score.paused) == (3, 1)


def test_without_a_guard_the_audit_finds_duplicates() -> None:
    """The traffic of the seed contains duplicates."""
    run = storm(SYSTEM, Plan(deliveries=40, workers=2, kills=0, guarded=False))
    assert run.audit.duplicates
    assert not run.audit.passed
