"""Runners of a schedule: late, off for a day, dead, overlapping. Sync and async, both stores, in fake time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from onceward import RecordState
from onceward.schedules.definition import Ran
from tests.clients import SyncClient
from tests.integration.hourly_runs import NEW_YEAR, both_run_due, hourly, ran
from tests.planned import Runner, start_at, utc

__all__ = ["ran"]  # fixtures, re-exported so that pytest finds them


def test_a_new_schedule_starts_at_its_registration_and_runs_each_slot_when_it_comes(
    client: SyncClient, ran: list[datetime]
) -> None:
    start_at(client.clock, utc(2026, 1, 1, 8, 30))
    runner = hourly(client, ran, catch_up="all")
    runner.run_due()
    assert ran == []  # nothing of the time before
    runner.sleep_until(utc(2026, 1, 1, 11, 30))
    assert ran == [utc(2026, 1, 1, hour) for hour in (9, 10, 11)]
    assert runner.missed() == []


@pytest.mark.mission("C3")
def test_running_completed_and_failed_are_recorded(client: SyncClient) -> None:
    seen: list[RecordState] = []

    def work(scheduled_at: datetime) -> str:
        entry = client.wait(runner.planned.read(scheduled_at))
        seen.append(entry.state)
        if scheduled_at.hour == 2:
            raise ValueError("no such table")
        return f"at {scheduled_at:%H}"

    runner = Runner(client, work, "0 * * * *", name="report")
    runner.run_due()
    runner.sleep_until(utc(2026, 1, 1, 2, 30))
    assert seen == [RecordState.PENDING, RecordState.PENDING]
    done = client.wait(runner.planned.read("2026-01-01T01:00:00Z"))
    assert (done.state, done.value) == (RecordState.COMPLETED, "at 01")
    failed = client.wait(runner.planned.read(utc(2026, 1, 1, 2)))
    assert (failed.state, failed.error) == (RecordState.FAILED, "ValueError: no such table")
    assert failed.record.final


@pytest.mark.mission("C3")
def test_completed_and_failed_records_are_kept_for_longer_than_the_catch_up_age(
    client: SyncClient, ran: list[datetime]
) -> None:
    """At least catch-up age + lease + 1 day: the hour in the seed document is far below it."""
    runner = hourly(client, ran, catch_up_age="2d", lease="600s")
    runner.run_due()
    runner.sleep_until(utc(2026, 1, 1, 1, 30))
    record = client.wait(runner.planned.read(utc(2026, 1, 1, 1))).record
    assert record.valid_until - record.updated_at == (3 * 86_400 + 600) * 1_000_000


# ── a machine that was off for a day ──


def off_for_a_day(client: SyncClient, ran: list[datetime], **choices: object) -> Runner:
    """It ran at 00:00, was off until half past midnight of the next day, and lives on until three."""
    start_at(client.clock, NEW_YEAR - timedelta(minutes=30))
    before = hourly(client, ran, **choices)
    before.run_due()
    before.sleep_until(NEW_YEAR + timedelta(minutes=1))
    assert ran == [NEW_YEAR]
    ran.clear()
    del client.once.schedules["hourly"]
    start_at(client.clock, utc(2026, 1, 2, 0, 30))
    runner = hourly(client, ran, **choices)
    runner.run_due()
    runner.sleep_until(utc(2026, 1, 2, 3, 30))
    return runner


MISSED = [NEW_YEAR + timedelta(hours=hours) for hours in range(1, 25)]
AFTERWARDS = [utc(2026, 1, 2, hour) for hour in (1, 2, 3)]


@pytest.mark.fault("F49")
def test_without_catch_up_missed_runs_are_counted_and_reported_and_not_run(
    client: SyncClient, ran: list[datetime]
) -> None:
    runner = off_for_a_day(client, ran, catch_up="none")
    assert ran == AFTERWARDS
    assert [(one.count, one.first, one.last) for one in runner.missed()] == [(24, MISSED[0], MISSED[-1])]
    assert [event.reason for event in client.events_named("missed")] == [
        "24 runs missed, 2026-01-01T01:00Z to 2026-01-02T00:00Z"
    ]
    assert client.once.counts["missed"] == 1


@pytest.mark.fault("F49")
def test_catching_up_the_last_runs_one_and_misses_the_others(client: SyncClient, ran: list[datetime]) -> None:
    runner = off_for_a_day(client, ran, catch_up="last")
    assert ran == [MISSED[-1], *AFTERWARDS]
    assert [one.count for one in runner.missed()] == [23]


@pytest.mark.fault("F49")
def test_catching_up_all_runs_them_oldest_first(client: SyncClient, ran: list[datetime]) -> None:
    runner = off_for_a_day(client, ran, catch_up="all", catch_up_age="2d")
    assert ran == [*MISSED, *AFTERWARDS]
    assert runner.missed() == []
    assert [one.late for one in runner.reports if isinstance(one, Ran)] == [True] * 24 + [False] * 3


@pytest.mark.fault("F49")
def test_catching_up_is_bounded_by_age_and_by_count(client: SyncClient, ran: list[datetime]) -> None:
    runner = off_for_a_day(client, ran, catch_up="all", catch_up_age="10h")
    assert ran == [*MISSED[-10:], *AFTERWARDS]
    assert [one.count for one in runner.missed()] == [14]


@pytest.mark.fault("F49")
def test_catching_up_a_few_takes_the_latest_ones(client: SyncClient, ran: list[datetime]) -> None:
    runner = off_for_a_day(client, ran, catch_up="all", catch_up_count=3)
    assert ran == [*MISSED[-3:], *AFTERWARDS]
    assert sum(one.count for one in runner.missed()) == 21


def test_missed_runs_are_counted_on_the_cursor_permanently(client: SyncClient, ran: list[datetime]) -> None:
    runner = off_for_a_day(client, ran, catch_up="none")
    client.clock.advance("400d")
    client.purge()
    again = Runner(client, ran.append, "0 * * * *", name="other")  # the first one's cursor is still there
    again.runner.schedule = runner.planned.schedule
    again.run_due()
    again.look()
    cursor = again.runner.cursor
    assert cursor is not None
    assert cursor.missed > 24 + 399 * 24


def test_after_a_very_long_outage_missed_runs_are_counted_only_up_to_a_limit(
    client: SyncClient, ran: list[datetime]
) -> None:
    runner = Runner(client, ran.append, "* * * * *", name="minutely", catch_up="last")
    runner.run_due()
    client.clock.advance("3650d")
    client.clock.advance("30s")
    runner.run_due()
    assert len(ran) == 1
    missed = runner.missed()[0]
    assert missed.more
    assert str(missed).startswith("1438+ runs missed, 2035-12-29T00:01Z to ")


# ── several runners ──


@pytest.mark.mission("C3")
def test_ten_runners_run_each_slot_once_and_report_missed_runs_once(client: SyncClient, ran: list[datetime]) -> None:
    runners = [hourly(client.another(), ran, catch_up="last") for _ in range(10)]
    for runner in runners:
        runner.run_due()
    for step in ("60m", "60m", "5h", "60m"):
        client.clock.advance(step)
        for runner in runners:
            runner.look()
        for runner in runners:
            runner.run_due()
    assert ran == [utc(2026, 1, 1, hour) for hour in (1, 2, 7, 8)]
    client.clock.advance("3m")
    for runner in runners:
        runner.run_due()
    assert sum(one.count for runner in runners for one in runner.missed()) == 4


@pytest.mark.mission("C3")
@pytest.mark.rival(24)
@pytest.mark.finding("N27")
def test_the_slot_of_a_runner_that_died_is_run_by_another_once_its_lease_is_over(
    client: SyncClient, ran: list[datetime]
) -> None:
    other = client.another()
    dead, alive = hourly(other, ran, lease="600s"), hourly(client, ran, lease="600s")
    both_run_due(dead, alive)
    client.clock.advance("60m")
    key = dead.planned.key(utc(2026, 1, 1, 1))
    silent = other.silent_owner(key, lease="600s")  # it has claimed the slot and crashes
    alive.run_due()
    assert ran == []
    alive.sleep_until(utc(2026, 1, 1, 1, 9))
    assert ran == []
    alive.sleep_until(utc(2026, 1, 1, 1, 11))
    assert ran == [utc(2026, 1, 1, 1)]
    assert silent.token < client.wait(alive.planned.read(utc(2026, 1, 1, 1))).token


def test_a_runner_that_dies_before_it_claims_loses_nothing(client: SyncClient, ran: list[datetime]) -> None:
    dead, alive = hourly(client.another(), ran), hourly(client, ran)
    both_run_due(dead, alive)
    client.clock.advance("60m")
    dead.look()  # and never works
    alive.run_due()
    assert ran == [utc(2026, 1, 1, 1)]


def test_late_runs_execute_one_at_a_time_across_all_runners(client: SyncClient, ran: list[datetime]) -> None:
    runners = [hourly(client.another(), ran, catch_up="all", overlap="allow") for _ in range(3)]
    for runner in runners:
        runner.run_due()
    client.clock.advance("5h30m")
    key = runners[0].planned.key(utc(2026, 1, 1, 1))
    with client.claim(key):  # another worker is running the first one
        for runner in runners:
            runner.run_due()
        assert ran == []
    for runner in runners:
        runner.run_due()
    assert ran == [utc(2026, 1, 1, hour) for hour in (2, 3, 4, 5)]


def test_a_pattern_that_was_changed_is_a_new_schedule_whose_slots_are_still_the_same_runs(
    client: SyncClient, ran: list[datetime]
) -> None:
    before = hourly(client, ran, catch_up="all")
    before.run_due()
    before.sleep_until(utc(2026, 1, 1, 2, 59))
    del client.once.schedules["hourly"]
    after = Runner(client, ran.append, "*/30 * * * *", name="hourly", catch_up="all")
    after.run_due()
    assert ran == [utc(2026, 1, 1, 1), utc(2026, 1, 1, 2)]  # 00:30, 01:30 and 02:30 do not count as missed
    client.clock.advance("60s")
    before.run_due()
    after.run_due()
    assert ran[2:] == [utc(2026, 1, 1, 3)]
