"""Slots that fail, and runs that overlap: sync and async, both stores."""

from __future__ import annotations

from datetime import datetime

import pytest

from onceward import Executed, RecordState
from tests.clients import SyncClient
from tests.integration.hourly_runs import both_run_due, hourly, ran
from tests.integration.test_schedule_trouble import overlap_lock_of_another
from tests.planned import Runner, utc

__all__ = ["ran"]  # fixtures, re-exported so that pytest finds them


# ── failures ──


@pytest.mark.mission("C3")
def test_a_failed_slot_is_not_run_again_whatever_it_raised(client: SyncClient) -> None:
    tries: list[datetime] = []

    def work(scheduled_at: datetime) -> None:
        tries.append(scheduled_at)
        raise (ValueError, TimeoutError, ConnectionError)[scheduled_at.hour % 3]

    runners = [Runner(one, work, "0 * * * *", name="report") for one in (client, client.another())]
    for runner in runners:
        runner.run_due()
    for _ in range(3):
        client.clock.advance("30m")
        for runner in runners:
            runner.run_due()
        client.clock.advance("30m")
        for runner in runners:
            runner.run_due()
    assert tries == [utc(2026, 1, 1, hour) for hour in (1, 2, 3)]


@pytest.mark.mission("C3")
def test_a_failed_slot_is_run_again_if_that_was_declared(client: SyncClient) -> None:
    tries: list[datetime] = []

    def work(scheduled_at: datetime) -> None:
        tries.append(scheduled_at)
        raise TimeoutError if scheduled_at.hour == 2 else ConnectionError

    runner = Runner(client, work, "0 * * * *", name="r", retry=ConnectionError, retry_delay="5m", max_attempts=3)
    runner.run_due()
    runner.sleep_until(utc(2026, 1, 1, 1, 4))
    assert len(tries) == 1
    runner.sleep_until(utc(2026, 1, 1, 1, 59))
    assert tries == [utc(2026, 1, 1, 1)] * 3
    runner.sleep_until(utc(2026, 1, 1, 2, 59))
    assert tries[3:] == [utc(2026, 1, 1, 2)]  # a timeout was not asked for


@pytest.mark.mission("C3")
def test_a_failed_slot_is_run_again_on_request(client: SyncClient) -> None:
    tries: list[datetime] = []

    def work(scheduled_at: datetime) -> str:
        tries.append(scheduled_at)
        if len(tries) < 2:
            raise ValueError("not yet")
        return "done"

    runner = Runner(client, work, "0 * * * *", name="report")
    runner.run_due()
    runner.sleep_until(utc(2026, 1, 1, 1, 30))
    assert client.wait(runner.planned.tick(utc(2026, 1, 1, 1))).kind == "failed"
    assert len(tries) == 1
    asked = client.wait(runner.planned.tick(utc(2026, 1, 1, 1), rerun=True))
    assert isinstance(asked, Executed)
    assert (asked.value, asked.attempt) == ("done", 2)
    assert client.wait(runner.planned.tick(utc(2026, 1, 1, 1), rerun=True)).kind == "replayed"  # it did not fail
    assert len(tries) == 2


# ── overlap ──


def test_a_run_that_takes_longer_than_its_period_makes_the_next_one_skipped(
    client: SyncClient, ran: list[datetime]
) -> None:
    long, other = hourly(client, ran), hourly(client.another(), ran)
    both_run_due(long, other)
    going = client.silent_owner(long.planned.schedule.overlap_lock, lease="90m")  # a run that takes that long
    client.clock.advance("60m")
    both_run_due(long, other)
    assert ran == []
    assert going.state is RecordState.PENDING
    assert "skipped" in long.outcomes() + other.outcomes()
    record = client.wait(long.planned.read(utc(2026, 1, 1, 1))).record
    assert (record.state, record.error_type, record.final) == (RecordState.FAILED, "Skipped", True)
    client.clock.advance("60m")
    both_run_due(long, other)
    assert ran == [utc(2026, 1, 1, 2)]


@pytest.mark.parametrize("overlap", ["wait", "allow", "skip"])
def test_overlapping_runs_wait_or_are_allowed_or_are_skipped(client: SyncClient, overlap: str) -> None:
    inside: list[tuple[str, datetime]] = []
    other = client.another()

    def work(scheduled_at: datetime) -> None:
        inside.append(("in", scheduled_at))
        if scheduled_at.hour == 1:
            client.clock.advance("60m")
            later.look()
            if overlap == "wait":
                waiting.append(client.start(later.work))
            else:
                client.start(later.work).result(60)
        inside.append(("out", scheduled_at))

    waiting: list[object] = []
    first = Runner(client, work, "0 * * * *", name="r", overlap=overlap, lease="1d")
    later = Runner(other, work, "0 * * * *", name="r", overlap=overlap, lease="1d")
    both_run_due(first, later)
    client.clock.advance("60m")
    first.run_due()
    for one in waiting:
        one.result(60)  # type: ignore[attr-defined]  # a Future
    one, two = utc(2026, 1, 1, 1), utc(2026, 1, 1, 2)
    expected = {
        "wait": [("in", one), ("out", one), ("in", two), ("out", two)],
        "allow": [("in", one), ("in", two), ("out", two), ("out", one)],
        "skip": [("in", one), ("out", one)],
    }
    assert inside == expected[overlap]


def test_the_overlap_lock_of_a_runner_that_died_is_free_after_its_lease(
    client: SyncClient, ran: list[datetime]
) -> None:
    other = client.another()
    runner = hourly(client, ran, lease="600s")
    runner.run_due()
    other.silent_owner(runner.planned.schedule.overlap_lock, lease="600s")
    runner.sleep_until(utc(2026, 1, 1, 1, 30))
    assert ran == [utc(2026, 1, 1, 1)]


def test_a_parked_slot_blocks_no_other_slot(client: SyncClient, ran: list[datetime]) -> None:
    """After a crash between effect and record, no runner runs that slot again, but the schedule continues."""
    runner = hourly(client, ran, lease="600s", after_crash="park", max_attempts=1)
    runner.run_due()
    client.clock.advance("60m")
    runner.look()
    other = client.another()
    other.silent_owner(runner.planned.key(utc(2026, 1, 1, 1)), lease="600s", after_crash="park")
    overlap_lock_of_another(other, runner)
    runner.pool.works.clear()
    runner.runner._own_slots.clear()
    runner.sleep_until(utc(2026, 1, 1, 3, 30))
    assert client.wait(runner.planned.read(utc(2026, 1, 1, 1))).state is RecordState.PARKED
    assert ran == [utc(2026, 1, 1, 2), utc(2026, 1, 1, 3)]
