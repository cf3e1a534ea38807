"""Runs that an external scheduler starts: system cron, Kubernetes, APScheduler, Celery beat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onceward import (
    AlreadyDone,
    AlreadyRunning,
    ConfigurationError,
    InvalidKey,
    NotAcquired,
    Once,
    PreviouslyFailed,
    RecordState,
)
from onceward.stores.sqlite import SQLiteStore
from onceward.testing import disabled
from onceward.testing.clock import FakeClock
from tests.cli.calls import until
from tests.clients import TOO_LONG, AsyncClient, SyncClient
from tests.planned import start_at, utc

PATTERN = "*/5 8-18 * * 1-6"
FIVE_PAST = utc(2026, 3, 2, 8, 5)  # a Monday


@contextmanager
def ticked(client: SyncClient, name: str, scheduled_at: datetime | str | None = None, **choices: Any) -> Iterator[Any]:
    """Run the block of a sync or async tick as blocking code."""
    block = client.once.tick(name, scheduled_at, **choices)
    asynchronous = isinstance(client, AsyncClient)
    run = client.drive(block.__aenter__()) if asynchronous else block.__enter__()
    try:
        yield run
    except BaseException as error:
        if asynchronous:
            client.drive(block.__aexit__(type(error), error, None))
        else:
            block.__exit__(type(error), error, None)
        raise
    if asynchronous:
        client.drive(block.__aexit__(None, None, None))
    else:
        block.__exit__(None, None, None)


def fired(client: SyncClient, name: str = "report", scheduled_at: Any = None, **choices: Any) -> datetime | None:
    """The slot that was run, or None."""
    try:
        with ticked(client, name, scheduled_at, **choices) as run:
            at: datetime = run.scheduled_at
            return at
    except NotAcquired:
        return None


@pytest.mark.mission("C3", "C9")
def test_a_run_happens_once_whichever_machine_fires_it_and_however_its_time_is_written(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    other = client.another()
    assert fired(client, scheduled_at=FIVE_PAST) == FIVE_PAST
    assert fired(other, scheduled_at="2026-03-02T08:05:00Z") is None
    assert fired(other, scheduled_at="2026-03-02T09:05:00+01:00") is None
    assert fired(client, pattern=PATTERN) is None
    assert fired(client, "another report", FIVE_PAST) == FIVE_PAST
    with pytest.raises(AlreadyDone):
        ticked(client, "report", FIVE_PAST).__enter__()


@pytest.mark.mission("C3")
def test_while_a_run_is_active_other_fires_get_running_and_a_crash_frees_it_after_the_lease(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    other = client.another()
    key = other.once.tick("report", FIVE_PAST)._schedule.key(1_772_438_700_000_000)
    assert key.text == "2026-03-02T08:05Z"
    other.silent_owner(key, lease="600s")
    with pytest.raises(AlreadyRunning):
        ticked(client, "report", FIVE_PAST, wait=0).__enter__()
    client.clock.advance("601s")
    assert fired(client, scheduled_at=FIVE_PAST) == FIVE_PAST


@pytest.mark.finding("N27")
@pytest.mark.parametrize("way", ["block", "function"])
@pytest.mark.parametrize("crashes", [True, False])
def test_a_fire_that_lost_its_slot_watches_it_and_takes_over_after_a_crash(
    client: SyncClient, crashes: bool, way: str
) -> None:
    start_at(client.clock, FIVE_PAST)
    key = client.once.tick("report", FIVE_PAST)._schedule.key(1_772_438_700_000_000)
    owner = client.another().silent_owner(key, lease="600s")
    ran: list[datetime] = []
    planned = client.once.schedule(PATTERN, name="report")(client.work(ran.append))

    def fire() -> bool:
        if way == "block":
            return fired(client) == FIVE_PAST
        outcome = client.wait(planned.tick(FIVE_PAST))
        assert ran == ([FIVE_PAST] if outcome.kind == "executed" else [])
        return bool(outcome.kind == "executed")

    with client.calls_counted("claim") as claims:
        answer = client.start(fire)
        until(lambda: len(claims) > 2 or answer.done())  # it watches the slot: it has claimed again
        assert not answer.done()
        if crashes:
            client.clock.advance("601s")
        else:
            owner.complete("done by the other worker")
        assert answer.result(TOO_LONG) is crashes


@pytest.mark.mission("C3")
def test_a_failed_run_is_not_repeated_unless_requested(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    with pytest.raises(OSError, match="disk"), ticked(client, "report", FIVE_PAST):
        raise OSError("disk")
    with pytest.raises(PreviouslyFailed, match="disk"):
        ticked(client, "report", FIVE_PAST).__enter__()
    with ticked(client, "report", FIVE_PAST, rerun=True) as run:
        assert run.attempt == 2
    assert fired(client, scheduled_at=FIVE_PAST, rerun=True) is None


@pytest.mark.rival(26)
@pytest.mark.fault("F43", "F49")
@pytest.mark.parametrize("offset", [timedelta(seconds=seconds) for seconds in (-30, -20, -1, 0, 1, 20, 30)])
def test_machines_whose_clocks_are_30_seconds_apart_agree_across_a_slot_edge(tmp_path: Path, offset: timedelta) -> None:
    """Each has the clock of its own machine and one store; one of them fires right at the edge."""
    clocks = [FakeClock(), FakeClock()]
    start_at(clocks[0], FIVE_PAST)
    start_at(clocks[1], FIVE_PAST + offset)
    ran = []
    for clock in clocks:
        with Once(SQLiteStore(tmp_path / "once.db", clock=clock)) as once:
            try:
                with once.tick("report", pattern=PATTERN) as run:
                    ran.append(run.scheduled_at)
            except NotAcquired:
                continue
    assert ran == [FIVE_PAST]


@pytest.mark.fault("F49")
def test_a_fire_takes_the_latest_slot_and_one_that_comes_early_the_slot_that_it_is_early_for(
    client: SyncClient,
) -> None:
    for shift, expected in (
        (timedelta(), FIVE_PAST),
        (timedelta(minutes=4, seconds=29), FIVE_PAST),
        (timedelta(minutes=4, seconds=30), FIVE_PAST + timedelta(minutes=5)),
        (timedelta(minutes=6), FIVE_PAST + timedelta(minutes=5)),
    ):
        start_at(client.clock, FIVE_PAST + shift)
        assert fired(client, f"report {shift}", pattern=PATTERN) == expected
    start_at(client.clock, FIVE_PAST + timedelta(minutes=9, seconds=59))
    assert fired(client, "strict", pattern=PATTERN, early=0) == FIVE_PAST + timedelta(minutes=5)


def test_slots_that_come_often_leave_less_room_for_early_fires(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST + timedelta(seconds=4))
    assert fired(client, pattern="*/10 * * * * *") == FIVE_PAST
    start_at(client.clock, FIVE_PAST + timedelta(seconds=5))
    assert fired(client, pattern="*/10 * * * * *") == FIVE_PAST + timedelta(seconds=10)


@pytest.mark.fault("F49")
def test_a_fire_that_is_much_too_late_or_too_early_runs_nothing(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    for wrong, word in ((timedelta(seconds=31), "too early"), (-timedelta(hours=25), "too late")):
        with pytest.raises(NotAcquired, match=word):
            ticked(client, "report", FIVE_PAST + wrong).__enter__()
    assert fired(client, scheduled_at=FIVE_PAST + timedelta(minutes=1), early="1m") is not None
    assert fired(client, scheduled_at=FIVE_PAST - timedelta(hours=25), catch_up_age="2d") is not None


def test_no_slot_runs_twice_however_late_it_is_fired_again_and_whatever_was_purged(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    assert fired(client, scheduled_at=FIVE_PAST) == FIVE_PAST
    for _ in range(80):
        client.clock.advance("1h")
        client.purge()
        assert fired(client, scheduled_at=FIVE_PAST) is None


def test_overlapping_fires_skip_and_a_skipped_slot_stays_skipped(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    next_one = FIVE_PAST + timedelta(minutes=5)
    other = client.another()
    with ticked(client, "report", FIVE_PAST, lease="1h"):
        client.clock.advance("5m")
        with pytest.raises(PreviouslyFailed, match="Skipped"):
            ticked(other, "report", next_one).__enter__()
        assert fired(other, scheduled_at=next_one + timedelta(seconds=1), overlap="allow") is not None
    assert fired(other, scheduled_at=next_one) is None
    assert fired(other, scheduled_at=next_one, rerun=True) == next_one


def test_the_overlap_lock_is_released_however_a_run_ends(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    with pytest.raises(KeyboardInterrupt), ticked(client, "report", FIVE_PAST - timedelta(minutes=5)):
        raise KeyboardInterrupt
    assert fired(client, scheduled_at=FIVE_PAST) == FIVE_PAST
    assert client.leases() == 0


def test_a_declared_schedule_is_ticked_by_its_name_or_by_its_function(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    ran: list[datetime] = []

    def report(scheduled_at: datetime) -> int:
        ran.append(scheduled_at)
        return len(ran)

    planned = client.once.schedule(PATTERN, tz="Europe/Berlin", name="report")(client.work(report))
    outcome = client.wait(planned.tick())
    assert (outcome.value, outcome.reason) == (1, "executed")
    assert ran[0].isoformat() == "2026-03-02T09:05:00+01:00"  # as clocks in Berlin show it
    assert client.wait(planned.tick(FIVE_PAST)).replayed
    assert fired(client) is None
    client.clock.advance("5m")
    assert fired(client) == FIVE_PAST + timedelta(minutes=5)  # the block does the work here
    assert len(ran) == 1
    assert client.wait(planned(FIVE_PAST)) == 2  # called directly, it is a plain function


def test_records_are_found_by_the_schedules_name(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    with ticked(client, "report", FIVE_PAST) as run:
        client.wait(run.complete("12 pages")) if isinstance(client, AsyncClient) else run.complete("12 pages")
    entry = client.read(FIVE_PAST, name="schedule:report")
    assert (entry.state, entry.value, entry.scope) == (RecordState.COMPLETED, "12 pages", "default/schedule:report")
    assert client.read("2026-03-02T08:05Z", name="schedule:report").token == entry.token


def test_tenants_have_schedules_of_their_own(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    acme = client.another(tenant="acme")
    assert fired(client, scheduled_at=FIVE_PAST) == fired(acme, scheduled_at=FIVE_PAST) == FIVE_PAST


def test_switched_off_a_run_just_runs(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    with disabled():
        assert fired(client, scheduled_at=FIVE_PAST) == fired(client, scheduled_at=FIVE_PAST) == FIVE_PAST
    assert fired(client, scheduled_at=FIVE_PAST) == FIVE_PAST


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"pattern": "61 * * * *"}, "is invalid"),
        ({"pattern": "* * *"}, "is invalid"),
        ({"pattern": "0 0 30 2 *"}, "is invalid|never matches"),
        ({"pattern": "0 0 31 2,4 *"}, "is invalid|never matches"),
        ({"pattern": 5}, "must be a string"),
        ({"pattern": PATTERN, "tz": "Europe/Atlantis"}, "unknown time zone"),
        ({"pattern": PATTERN, "overlap": "maybe"}, "overlap cannot be"),
        ({"pattern": PATTERN, "catch_up": "some"}, "catch_up cannot be"),
        ({"pattern": PATTERN, "catch_up_count": 0}, "at least 1"),
        ({"pattern": PATTERN, "catch_up_age": "a day"}, "not a duration"),
        ({"pattern": PATTERN, "catch_up_age": "1m"}, "times the grace"),
        ({"pattern": PATTERN, "grace": 0}, "would miss every slot"),
        ({"pattern": PATTERN, "window": "1h"}, "too short for a schedule"),
        ({"pattern": PATTERN, "on_running": "wait"}, "has no effect"),
        ({"pattern": PATTERN, "leese": "1h"}, "no setting"),
        ({"pattern": PATTERN, "catchup": "all"}, "did you mean 'catch_up'"),
        ({}, "has no pattern"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(client: SyncClient, wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        client.once.tick("report", **wrong)


@pytest.mark.parametrize("when", [datetime(2026, 3, 2, 8, 5), "2026-03-02T08:05:00", "noon", 5])  # noqa: DTZ001 (naive on purpose)
def test_a_time_without_a_zone_is_not_a_slot(client: SyncClient, when: Any) -> None:
    with pytest.raises(InvalidKey):
        client.once.tick("report", when)


def test_declarations_that_cannot_work_are_refused(client: SyncClient) -> None:
    def no_arguments() -> None: ...
    def two(one: int, other: int) -> None: ...

    schedule = client.once.schedule
    schedule(PATTERN, name="report")(client.work(no_arguments))
    with pytest.raises(ConfigurationError, match="two schedules are named"):
        schedule(PATTERN, name="report")(client.work(no_arguments))
    with pytest.raises(ConfigurationError, match="parameters that a schedule does not know"):
        schedule(PATTERN, name="two")(client.work(two))
    with pytest.raises(ConfigurationError, match="unlike this client"):
        schedule(PATTERN, name="sync and async mixed")(
            no_arguments if isinstance(client, AsyncClient) else coroutine_function
        )
    with pytest.raises(ConfigurationError, match="already declared"):
        client.once.tick("report", pattern=PATTERN)


async def coroutine_function() -> None: ...


def test_a_fire_at_the_wrong_time_is_an_outcome_of_a_declared_function_and_is_reported(client: SyncClient) -> None:
    start_at(client.clock, FIVE_PAST)
    planned = client.once.schedule(PATTERN, name="report")(client.work(lambda: None))
    for wrong, reason in ((timedelta(seconds=31), "too early"), (-timedelta(hours=25), "too late")):
        outcome = client.wait(planned.tick(FIVE_PAST + wrong))
        assert (outcome.kind, outcome.reason) == ("stale", reason)
        assert client.events_named("skipped")[-1].reason == reason
