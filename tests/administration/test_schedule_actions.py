"""Pause, resume and run a schedule now, from another process than its runners."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from onceward import ConfigurationError
from onceward.administration import Visible
from tests.administration.shop import admin_of
from tests.clients import SyncClient
from tests.integration.hourly_runs import NEW_YEAR, both_run_due, hourly, ran
from tests.planned import Runner, start_at, utc

__all__ = ["ran"]  # fixtures, re-exported so that pytest finds them


def test_a_paused_schedule_starts_nothing_until_it_is_resumed(client: SyncClient, ran: list[datetime]) -> None:
    start_at(client.clock, NEW_YEAR - timedelta(minutes=30))
    runner = hourly(client, ran, catch_up="last")
    runner.run_due()
    admin = admin_of(client, who="anna")
    assert admin.pause_schedule("hourly", why="maintenance")
    assert not admin.pause_schedule("hourly"), "it is already paused"
    runner.sleep_until(utc(2026, 1, 1, 2, 30))
    assert ran == []
    [row] = admin.schedules()
    assert (row.paused, row.overdue, row.pattern_text) == (True, False, "at minute 0 of every hour")
    assert row.last_run is None
    assert admin.resume_schedule("hourly", why="done")
    assert not admin.resume_schedule("hourly")
    runner.sleep_until(utc(2026, 1, 1, 2, 45))
    assert ran == [utc(2026, 1, 1, 2)], "catch_up decides what runs of the slots that passed"
    runner.sleep_until(utc(2026, 1, 1, 3, 30))
    assert ran[-1] == utc(2026, 1, 1, 3)
    assert [(one.verb, one.who, one.why) for one in admin.audit()] == [
        ("resume", "anna", "done"),
        ("pause", "anna", "maintenance"),
    ]


def test_a_requested_run_runs_once_on_any_number_of_runners_even_if_paused(
    client: SyncClient, ran: list[datetime]
) -> None:
    start_at(client.clock, NEW_YEAR + timedelta(minutes=10))
    runner = hourly(client, ran)
    other = hourly_again(client, ran)
    both_run_due(runner, other)
    admin = admin_of(client)
    admin.pause_schedule("hourly")
    id = admin.run_schedule_now("hourly", why="the report is missing")
    client.clock.advance("1m")
    both_run_due(runner, other)
    assert len(ran) == 1
    assert admin.key(id).row.standing == "COMPLETED"
    client.clock.advance("1m")
    second = admin.run_schedule_now("hourly")
    client.clock.advance("1m")
    both_run_due(runner, other)
    assert (len(ran), second != id) == (2, True)
    client.clock.advance("40d")  # the records of the runs are gone, the request is not
    client.drive(client.once.store.purge(1000, timeout=30))
    both_run_due(hourly_again(client, ran))  # a runner that has seen nothing of it
    assert len(ran) == 2


def hourly_again(client: SyncClient, ran: list[datetime]) -> Runner:
    """Return a second runner of the same schedule, as another machine would have."""
    del client.once.schedules["hourly"]
    return hourly(client, ran)


def test_a_schedule_shows_its_slots(client: SyncClient, ran: list[datetime]) -> None:
    start_at(client.clock, NEW_YEAR - timedelta(minutes=30))
    runner = hourly(client, ran)
    runner.run_due()
    runner.sleep_until(utc(2026, 1, 1, 1, 30))
    admin = admin_of(client)
    detail = admin.schedule("hourly")
    assert [(at, None if row is None else row.standing) for at, row in detail.slots] == [
        (utc(2026, 1, 1, 1), "COMPLETED"),
        (NEW_YEAR, "COMPLETED"),
    ], "slots from before the schedule was registered are not shown"
    assert detail.upcoming[:2] == [utc(2026, 1, 1, 2), utc(2026, 1, 1, 3)]
    assert detail.row.next_slot == utc(2026, 1, 1, 2)
    assert detail.row.last_run == detail.slots[0][1]
    assert admin.schedule("other") is None
    with pytest.raises(ConfigurationError, match="no schedule 'hourly'"):
        admin.limited(Visible(scopes=("default/other",))).pause_schedule("hourly")


def test_a_slot_that_was_missed_is_shown_without_a_record(client: SyncClient, ran: list[datetime]) -> None:
    start_at(client.clock, NEW_YEAR - timedelta(minutes=30))
    runner = hourly(client, ran, catch_up="none")
    assert admin_of(client).schedule("hourly").slots == [], "no runner has registered it"
    runner.run_due()
    client.clock.advance("5h")  # no runner was up
    runner.run_due()
    runner.sleep_until(utc(2026, 1, 1, 5, 30))
    shown = [(at.hour, row is not None) for at, row in admin_of(client).schedule("hourly").slots]
    assert shown[-1] == (0, False), "the first slot after its registration"
    assert shown[0] == (5, True)


def test_a_schedule_whose_last_run_failed_is_failing(client: SyncClient) -> None:
    start_at(client.clock, NEW_YEAR - timedelta(minutes=30))
    fails = [True]

    def report(_slot: datetime) -> None:
        if fails[0]:
            raise ValueError("no data")

    runner = Runner(client, report, "0 * * * *", name="report", final=ValueError)
    runner.run_due()
    admin = admin_of(client)
    assert admin.schedules()[0].standing == "ok"
    runner.sleep_until(NEW_YEAR + timedelta(minutes=30))
    assert admin.schedules()[0].standing == "failing"
    fails[0] = False
    runner.sleep_until(NEW_YEAR + timedelta(minutes=90))
    assert admin.schedules()[0].standing == "ok"
