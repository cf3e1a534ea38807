"""examples/outreach: its lock, and its runs of cron on several machines."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from examples.outreach.app import PATTERN
from examples.outreach.audit import audit
from onceward import RecordState
from tests.clients import TOO_LONG
from tests.integration.outreach_cases import ROOT, env, together
from tests.integration.outreach_environment import ANNA, BORIS, Environment

__all__ = ["env"]  # fixtures, re-exported so that pytest finds them


@pytest.mark.mission("C2")
def test_with_lock_returns_nothing_when_the_lock_is_taken(env: Environment) -> None:
    first, second = env.worker(), env.worker()
    answers: list[Any] = []

    def work() -> str:
        answers.append(second.with_lock("sync", lambda: "second"))
        return "first"

    assert first.with_lock("sync", work) == "first"
    assert answers == [None]
    assert second.with_lock("sync", lambda: "later") == "later"


@pytest.mark.mission("C3", "C10")
def test_a_run_of_cron_happens_once_among_all_machines_and_a_restart_sends_nothing_again(env: Environment) -> None:
    workers = [env.worker() for _ in range(3)]
    for who in (ANNA, BORIS):
        workers[0].import_prospect(**who)
    env.clock.advance("8h5m")  # Thursday, 2026-01-01
    outcomes = together([worker.cron.tick for worker in workers])
    assert sum(outcome.executed for outcome in outcomes) == 1
    workers[0].close()
    restarted = env.worker()
    assert restarted.cron.tick().replayed
    assert restarted.cron.tick("2026-01-01T08:05:00Z").replayed
    env.clock.advance("5m")
    assert restarted.cron.tick().value == 0  # another slot, but no prospect is due
    assert env.rows("SELECT pattern, scheduled_at, sent FROM runs ORDER BY 2") == [
        (PATTERN, "2026-01-01T08:05:00.000000+00:00", 2),
        (PATTERN, "2026-01-01T08:10:00.000000+00:00", 0),
    ]
    assert len(env.kept("SELECT 1 FROM mails")) == 2
    env.clock.advance("14h")  # 22:10: the pattern ends at 18:55, so a fire is for that slot
    assert restarted.cron.tick().value == 0
    assert env.rows("SELECT max(scheduled_at) FROM runs") == ["2026-01-01T18:55:00.000000+00:00"]
    env.clock.advance("2d")  # Saturday, 22:10
    assert restarted.cron.tick().value == 2, "the prospects are due again"
    assert env.rows("SELECT max(scheduled_at) FROM runs") == ["2026-01-03T18:55:00.000000+00:00"]
    env.clock.advance("14h")  # Sunday, 12:10: no slot of its own
    assert restarted.cron.tick().replayed


DIES = """
import os, sys
from examples.outreach.app import Outreach
from onceward.stores.sqlite import SQLiteStore
from onceward.testing import FakeClock

database, file, smtp, api, now = sys.argv[1:]
clock = FakeClock(int(now))
outreach = Outreach(database, smtp=smtp, api=api, store=SQLiteStore(file, clock=clock), clock=clock)
outreach._record_sent = lambda *_: os.kill(os.getpid(), 9)
outreach.cron.tick()
"""


@pytest.mark.finding("N27")
@pytest.mark.mission("C1", "C3", "C10")
def test_a_run_whose_worker_was_killed_after_a_mail_is_free_after_600_seconds_and_does_not_send_that_mail_again(
    env: Environment,
) -> None:
    outreach = env.worker()
    for who in (ANNA, BORIS):
        outreach.import_prospect(**who)
    env.clock.advance("8h5m")
    place = [env.database, f"{env.folder}/outreach.db", env.outside.smtp, env.outside.api]
    child = subprocess.run([sys.executable, "-c", DIES, *place, str(env.clock.now())], cwd=ROOT, check=False)
    assert child.returncode == -signal.SIGKILL
    slot = "2026-01-01T08:05:00Z"
    env.clock.advance("599s")
    with ThreadPoolExecutor() as pool:
        other = pool.submit(outreach.cron.tick, slot)  # it watches the run, to take over
        with pytest.raises(TimeoutError):
            other.result(0.3)
        env.clock.advance("1s")
        assert other.result(TOO_LONG).value == 1  # the other one had been sent
    assert sorted(env.kept("SELECT prospect FROM mails")) == sorted(env.rows("SELECT id FROM prospects"))
    assert [found.wrong for found in audit(env.data) if found.wrong] == []


@pytest.mark.mission("C3")
def test_a_failed_run_is_recorded_and_not_run_again_unless_asked(env: Environment) -> None:
    outreach = env.worker()
    outreach.import_prospect(**ANNA)
    env.clock.advance("8h5m")
    env.outside.refuses_mail = True
    assert [outreach.cron.tick().reason for _ in range(2)] == ["failed", "failed"]
    env.outside.refuses_mail = False
    env.clock.advance("1h")
    slot = "2026-01-01T08:05:00Z"
    assert outreach.cron.tick(slot).reason == "failed"
    entry = outreach.cron.read(slot)
    assert entry is not None
    assert entry.state is RecordState.FAILED
    assert env.kept("SELECT 1 FROM mails") == []
    assert outreach.cron.tick(slot, rerun=True).value == 1
    assert len(env.kept("SELECT 1 FROM mails")) == 1
