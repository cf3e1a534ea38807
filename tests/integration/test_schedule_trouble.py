"""Schedules whose store, runner or clock fails: sync and async, both stores."""

from __future__ import annotations

import contextvars
from datetime import datetime, timedelta

import pytest

from onceward.engine.attempt import Attempt
from onceward.locks.flow import acquire_lock, release_lock
from onceward.schedules.due import Agenda
from onceward.schedules.slot_run import SlotRun
from onceward.schedules.slots import instant_of
from tests.cli.calls import until
from tests.clients import SyncClient
from tests.integration.hourly_runs import both_run_due, hourly, ran
from tests.planned import Runner, start_at, utc

__all__ = ["ran"]  # fixtures, re-exported so that pytest finds them


def test_a_store_that_does_not_answer_delays_a_slot_and_loses_none(client: SyncClient, ran: list[datetime]) -> None:
    runner = hourly(client, ran)
    runner.run_due()
    with client.store_trouble("read"):
        runner.sleep_until(utc(2026, 1, 1, 1, 0) + timedelta(seconds=20))
    assert ran == []
    runner.sleep_until(utc(2026, 1, 1, 1, 1))
    assert ran == [utc(2026, 1, 1, 1)]
    assert client.events_named("schedule_delayed")


@pytest.mark.parametrize("verb", ["claim", "settle", "forget"])
def test_lost_replies_neither_double_a_run_nor_a_count(client: SyncClient, ran: list[datetime], verb: str) -> None:
    runner = hourly(client, ran)
    runner.run_due()
    client.clock.advance("5h")
    with client.store_trouble(verb, times=2, applied=True):
        for _ in range(4):
            client.clock.advance("30s")
            runner.run_due()
    runner.sleep_until(utc(2026, 1, 1, 7, 30))
    assert ran == [utc(2026, 1, 1, hour) for hour in (5, 6, 7)]
    cursor = runner.runner.cursor
    assert cursor is not None
    assert cursor.missed == sum(one.count for one in runner.missed()) == 4


def test_a_stopped_client_begins_no_more_runs(client: SyncClient, ran: list[datetime]) -> None:
    runner = hourly(client, ran)
    runner.run_due()
    client.clock.advance("60m")
    runner.look()
    client.once.stop()
    runner.work()
    runner.look()
    assert ran == []


def test_a_run_that_waits_for_the_overlap_lock_when_the_client_stops_is_left_to_other_runners(
    client: SyncClient, ran: list[datetime]
) -> None:
    other = client.another()
    runner = hourly(client, ran, overlap="wait", lease="1d")
    runner.run_due()
    overlap_lock_of_another(other, runner)
    client.clock.advance("60m")
    runner.look()
    waiting = client.start(runner.work)
    until(lambda: other.wait(other.once.read(runner.planned.key(utc(2026, 1, 1, 1)))) is not None)
    client.once.stop()
    waiting.result(60)
    assert ran == []
    assert other.wait(other.once.read(runner.planned.key(utc(2026, 1, 1, 1)))) is None  # free: neither run nor skipped


def test_a_late_run_waits_for_the_overlap_lock_and_an_on_time_run_is_skipped(
    client: SyncClient, ran: list[datetime]
) -> None:
    other = client.another()
    runner = hourly(client, ran, overlap="skip", catch_up="all", lease="1d")
    runner.run_due()
    lock = overlap_lock_of_another(other, runner)
    client.clock.advance("90m")
    runner.look()
    waiting = client.start(runner.work)
    until(lambda: other.wait(other.once.read(runner.planned.key(utc(2026, 1, 1, 1)))) is not None)
    assert ran == []
    other.drive(release_lock(lock))
    waiting.result(60)
    assert ran == [utc(2026, 1, 1, 1)]


def overlap_lock_of_another(other: SyncClient, runner: Runner) -> Attempt:
    """Return the overlap lock of another client whose run is still active."""
    job = SlotRun(runner.planned.schedule, 0, runner.planned.job(0)).lock_job()
    lock: Attempt = contextvars.Context().run(other.drive, acquire_lock(other.once.engine, job))
    return lock


def test_the_runner_of_a_slot_moves_the_cursor_past_it_immediately(client: SyncClient, ran: list[datetime]) -> None:
    """A machine that is off for long must not count a slot as missed that ran right before."""
    runner = hourly(client, ran)
    runner.run_due()
    client.clock.advance("60m")
    runner.look()
    runner.work()
    assert runner.runner.is_due()  # a run has ended, so there may be something to do
    runner.look()
    runner.look()
    cursor = runner.runner.cursor
    assert cursor is not None
    assert cursor.considered == instant_of(utc(2026, 1, 1, 1))
    assert not runner.runner.is_due()


def test_of_two_runners_that_see_the_same_missed_runs_only_the_one_that_moves_the_cursor_reports_them(
    client: SyncClient, ran: list[datetime]
) -> None:
    first, second = hourly(client, ran), hourly(client.another(), ran)
    both_run_due(first, second)
    client.clock.advance("150m")
    first.run_due()
    now = instant_of(utc(2026, 1, 1, 2))
    seen = Agenda(now=(), late=None, considered=now, missed=(now,), settled=(), check_at=None)
    second.client.drive(second.runner._advance(seen, more=False))  # what it saw before the first one moved it
    assert [one.count for one in first.missed() + second.missed()] == [2]


@pytest.mark.fault("F44")
def test_slots_become_due_by_the_clock_of_the_store(client: SyncClient, ran: list[datetime]) -> None:
    start_at(client.clock, utc(2026, 1, 1, 0, 50))
    runner = hourly(client, ran)
    runner.run_due()
    client.clock.advance("20m")
    client.clock.set_back("15m")  # the store has 00:55, and a machine with its own clock has 01:10
    runner.run_due()
    assert ran == []
    runner.sleep_until(utc(2026, 1, 1, 1, 1))
    assert ran == [utc(2026, 1, 1, 1)]
