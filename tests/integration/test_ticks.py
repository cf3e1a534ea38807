"""Runs that somebody else's scheduler starts: system cron, Kubernetes, APScheduler, Celery beat."""

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
from tests.faces import AsyncFace, Face
from tests.planned import start_at, utc

PATTERN = "*/5 8-18 * * 1-6"
FIVE_PAST = utc(2026, 3, 2, 8, 5)  # a Monday


@contextmanager
def ticked(face: Face, name: str, scheduled_at: datetime | str | None = None, **choices: Any) -> Iterator[Any]:
    """The block of a tick of either colour, as blocking code."""
    block = face.once.tick(name, scheduled_at, **choices)
    asynchronous = isinstance(face, AsyncFace)
    run = face.drive(block.__aenter__()) if asynchronous else block.__enter__()
    try:
        yield run
    except BaseException as error:
        if asynchronous:
            face.drive(block.__aexit__(type(error), error, None))
        else:
            block.__exit__(type(error), error, None)
        raise
    if asynchronous:
        face.drive(block.__aexit__(None, None, None))
    else:
        block.__exit__(None, None, None)


def fired(face: Face, name: str = "report", scheduled_at: Any = None, **choices: Any) -> datetime | None:
    """The slot that was run, or None."""
    try:
        with ticked(face, name, scheduled_at, **choices) as run:
            at: datetime = run.scheduled_at
            return at
    except NotAcquired:
        return None


@pytest.mark.mission("C3", "C9")
def test_a_run_happens_once_whoever_fires_it_and_however_its_time_is_written(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    other = face.another()
    assert fired(face, scheduled_at=FIVE_PAST) == FIVE_PAST
    assert fired(other, scheduled_at="2026-03-02T08:05:00Z") is None
    assert fired(other, scheduled_at="2026-03-02T09:05:00+01:00") is None
    assert fired(face, pattern=PATTERN) is None
    assert fired(face, "another report", FIVE_PAST) == FIVE_PAST
    with pytest.raises(AlreadyDone):
        ticked(face, "report", FIVE_PAST).__enter__()


@pytest.mark.mission("C3")
def test_while_it_runs_the_others_are_told_so_and_a_crash_frees_it_after_the_lease(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    other = face.another()
    key = other.once.tick("report", FIVE_PAST)._schedule.key(1_772_438_700_000_000)
    assert key.text == "2026-03-02T08:05Z"
    other.silent_owner(key, lease="600s")
    with pytest.raises(AlreadyRunning):
        ticked(face, "report", FIVE_PAST).__enter__()
    face.clock.advance("601s")
    assert fired(face, scheduled_at=FIVE_PAST) == FIVE_PAST


@pytest.mark.mission("C3")
def test_a_failed_run_is_not_repeated_unless_somebody_asks(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    with pytest.raises(OSError, match="disk"), ticked(face, "report", FIVE_PAST):
        raise OSError("disk")
    with pytest.raises(PreviouslyFailed, match="disk"):
        ticked(face, "report", FIVE_PAST).__enter__()
    with ticked(face, "report", FIVE_PAST, rerun=True) as run:
        assert run.attempt == 2
    assert fired(face, scheduled_at=FIVE_PAST, rerun=True) is None


@pytest.mark.rival(26)
@pytest.mark.fault("F43", "F49")
@pytest.mark.parametrize("apart", [timedelta(seconds=seconds) for seconds in (-30, -20, -1, 0, 1, 20, 30)])
def test_machines_whose_clocks_are_30_seconds_apart_agree_across_a_slot_edge(tmp_path: Path, apart: timedelta) -> None:
    """Each has the clock of its own machine and one store; one of them fires right at the edge."""
    clocks = [FakeClock(), FakeClock()]
    start_at(clocks[0], FIVE_PAST)
    start_at(clocks[1], FIVE_PAST + apart)
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
def test_a_fire_takes_the_latest_slot_and_one_that_comes_early_the_slot_that_it_is_early_for(face: Face) -> None:
    for shift, expected in (
        (timedelta(), FIVE_PAST),
        (timedelta(minutes=4, seconds=29), FIVE_PAST),
        (timedelta(minutes=4, seconds=30), FIVE_PAST + timedelta(minutes=5)),
        (timedelta(minutes=6), FIVE_PAST + timedelta(minutes=5)),
    ):
        start_at(face.clock, FIVE_PAST + shift)
        assert fired(face, f"report {shift}", pattern=PATTERN) == expected
    start_at(face.clock, FIVE_PAST + timedelta(minutes=9, seconds=59))
    assert fired(face, "strict", pattern=PATTERN, early=0) == FIVE_PAST + timedelta(minutes=5)


def test_slots_that_come_often_leave_less_room_for_early_fires(face: Face) -> None:
    start_at(face.clock, FIVE_PAST + timedelta(seconds=4))
    assert fired(face, pattern="*/10 * * * * *") == FIVE_PAST
    start_at(face.clock, FIVE_PAST + timedelta(seconds=5))
    assert fired(face, pattern="*/10 * * * * *") == FIVE_PAST + timedelta(seconds=10)


@pytest.mark.fault("F49")
def test_a_fire_that_is_much_too_late_or_too_early_runs_nothing(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    for wrong, word in ((timedelta(seconds=31), "too early"), (-timedelta(hours=25), "too late")):
        with pytest.raises(NotAcquired, match=word):
            ticked(face, "report", FIVE_PAST + wrong).__enter__()
    assert fired(face, scheduled_at=FIVE_PAST + timedelta(minutes=1), early="1m") is not None
    assert fired(face, scheduled_at=FIVE_PAST - timedelta(hours=25), catch_up_age="2d") is not None


def test_no_slot_runs_twice_however_late_it_is_fired_again_and_whatever_was_purged(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    assert fired(face, scheduled_at=FIVE_PAST) == FIVE_PAST
    for _ in range(80):
        face.clock.advance("1h")
        face.purge()
        assert fired(face, scheduled_at=FIVE_PAST) is None


def test_overlapping_fires_skip_and_a_skipped_slot_stays_skipped(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    next_one = FIVE_PAST + timedelta(minutes=5)
    other = face.another()
    with ticked(face, "report", FIVE_PAST, lease="1h"):
        face.clock.advance("5m")
        with pytest.raises(PreviouslyFailed, match="Skipped"):
            ticked(other, "report", next_one).__enter__()
        assert fired(other, scheduled_at=next_one + timedelta(seconds=1), overlap="allow") is not None
    assert fired(other, scheduled_at=next_one) is None
    assert fired(other, scheduled_at=next_one, rerun=True) == next_one


def test_the_turn_is_given_up_however_a_run_ends(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    with pytest.raises(KeyboardInterrupt), ticked(face, "report", FIVE_PAST - timedelta(minutes=5)):
        raise KeyboardInterrupt
    assert fired(face, scheduled_at=FIVE_PAST) == FIVE_PAST
    assert face.leases() == 0


def test_a_declared_schedule_is_ticked_by_its_name_or_by_its_function(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    ran: list[datetime] = []

    def report(scheduled_at: datetime) -> int:
        ran.append(scheduled_at)
        return len(ran)

    planned = face.once.schedule(PATTERN, tz="Europe/Berlin", name="report")(face._work(report))
    outcome = face._wait(planned.tick())
    assert (outcome.value, outcome.reason) == (1, "executed")
    assert ran[0].isoformat() == "2026-03-02T09:05:00+01:00"  # as clocks in Berlin show it
    assert face._wait(planned.tick(FIVE_PAST)).replayed
    assert fired(face) is None
    face.clock.advance("5m")
    assert fired(face) == FIVE_PAST + timedelta(minutes=5)  # the block does the work here
    assert len(ran) == 1
    assert face._wait(planned(FIVE_PAST)) == 2  # called directly, it is a plain function


def test_records_are_found_by_the_schedules_name(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    with ticked(face, "report", FIVE_PAST) as run:
        face._wait(run.complete("12 pages")) if isinstance(face, AsyncFace) else run.complete("12 pages")
    entry = face.read(FIVE_PAST, name="schedule:report")
    assert (entry.state, entry.value, entry.scope) == (RecordState.COMPLETED, "12 pages", "default/schedule:report")
    assert face.read("2026-03-02T08:05Z", name="schedule:report").token == entry.token


def test_tenants_have_schedules_of_their_own(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    acme = face.another(tenant="acme")
    assert fired(face, scheduled_at=FIVE_PAST) == fired(acme, scheduled_at=FIVE_PAST) == FIVE_PAST


def test_switched_off_a_run_just_runs(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    with disabled():
        assert fired(face, scheduled_at=FIVE_PAST) == fired(face, scheduled_at=FIVE_PAST) == FIVE_PAST
    assert fired(face, scheduled_at=FIVE_PAST) == FIVE_PAST


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"pattern": "61 * * * *"}, "cannot be read"),
        ({"pattern": "* * *"}, "cannot be read"),
        ({"pattern": "0 0 30 2 *"}, "cannot be read|never comes"),
        ({"pattern": "0 0 31 2,4 *"}, "cannot be read|never comes"),
        ({"pattern": 5}, "is text"),
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
        ({}, "has no pattern"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(face: Face, wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        face.once.tick("report", **wrong)


@pytest.mark.parametrize("when", [datetime(2026, 3, 2, 8, 5), "2026-03-02T08:05:00", "noon", 5])  # noqa: DTZ001 (that is the point)
def test_a_time_without_a_zone_is_no_slot(face: Face, when: Any) -> None:
    with pytest.raises(InvalidKey):
        face.once.tick("report", when)


def test_declarations_that_cannot_work_are_refused(face: Face) -> None:
    def no_arguments() -> None: ...
    def two(one: int, other: int) -> None: ...

    schedule = face.once.schedule
    schedule(PATTERN, name="report")(face._work(no_arguments))
    with pytest.raises(ConfigurationError, match="two schedules are named"):
        schedule(PATTERN, name="report")(face._work(no_arguments))
    with pytest.raises(ConfigurationError, match="parameters that a schedule does not know"):
        schedule(PATTERN, name="two")(face._work(two))
    with pytest.raises(ConfigurationError, match="unlike this client"):
        schedule(PATTERN, name="wrong colour")(no_arguments if isinstance(face, AsyncFace) else coroutine_function)
    with pytest.raises(ConfigurationError, match="declared already"):
        face.once.tick("report", pattern=PATTERN)


async def coroutine_function() -> None: ...


def test_a_fire_at_the_wrong_time_is_an_outcome_of_a_declared_function_and_is_told(face: Face) -> None:
    start_at(face.clock, FIVE_PAST)
    planned = face.once.schedule(PATTERN, name="report")(face._work(lambda: None))
    for wrong, reason in ((timedelta(seconds=31), "too early"), (-timedelta(hours=25), "too late")):
        outcome = face._wait(planned.tick(FIVE_PAST + wrong))
        assert (outcome.kind, outcome.reason) == ("stale", reason)
        assert face.told("skipped")[-1].reason == reason
