"""examples/outreach in a storm: real mails, workers killed at random, then a count of what was received."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from examples.outreach.storm import deliver
from onceward.testing.storm import Plan, StormEvent, storm
from tests.integration.outreach_environment import ANNA, opened
from tests.servers.postgres import Postgres, new_database

SYSTEM = "examples.outreach.storm:SYSTEM"


@pytest.mark.mission("C1", "C3", "C4", "C6", "C8", "C10")
@pytest.mark.fault("F30", "F31")
def test_every_mail_reply_charge_and_run_happens_once_although_workers_are_killed() -> None:
    run = storm(SYSTEM, Plan(deliveries=80, workers=3, kills=3, pauses=1))
    assert run.audit.passed, run.audit
    assert run.audit.effects == run.audit.expected > 30
    assert (run.score.killed, run.score.paused) == (3, 1)


@pytest.mark.mission("C1", "C3", "C4", "C6", "C8", "C10")
@pytest.mark.fault("F30", "F31")
def test_the_same_holds_on_postgresql(postgres: Postgres) -> None:
    url = new_database(postgres, f"outreach_{os.getpid()}")
    run = storm(SYSTEM, Plan(deliveries=60, workers=2, kills=2, store=url))
    assert run.audit.passed, run.audit
    assert run.audit.effects == run.audit.expected > 25


@pytest.mark.mission("C1", "C8")
def test_without_onceward_the_same_storm_sends_and_charges_twice_although_every_worker_checks_first() -> None:
    """All copies come right after their originals, so two workers process many pairs at the same time."""
    run = storm(SYSTEM, Plan(deliveries=50, workers=2, kills=0, duplicates=3, together=1.0, guarded=False))
    assert not run.audit.passed
    for kind in ("mail of contact-", "charge-"):
        assert [one for one in run.audit.duplicates if one.startswith(kind)], run.audit


@pytest.mark.mission("C3")
def test_a_cron_run_whose_only_mail_was_refused_succeeds_when_it_is_delivered_again(tmp_path: Path) -> None:
    """Else a storm would never end: a failed slot runs again only when it is delivered again."""
    with opened(tmp_path) as runtime:
        outreach = runtime.worker()
        outreach.import_prospect(**ANNA)
        runtime.clock.advance("8h5m")
        run = StormEvent("cron-2026-01-01 08:05", "2026-01-01T08:05:00+00:00")
        runtime.outside.refuses_mail = True
        with pytest.raises(OSError, match="450"):
            deliver(outreach, run)
        runtime.outside.refuses_mail = False
        assert deliver(outreach, run) == {"done": True}
        assert deliver(outreach, run) == {"duplicate": True}
        assert len(runtime.kept("SELECT 1 FROM mails")) == 1
