"""Runners of a schedule: late, off for a day, dead, overlapping. On both faces and both stores, in fake time."""

from __future__ import annotations

import contextvars
from datetime import datetime, timedelta

import pytest

from onceward import Executed, State
from onceward.core.held import Held
from onceward.core.lock import give_up, take, untaken
from onceward.core.slot import Run
from onceward.model.due import Agenda
from onceward.model.schedule import Ran
from onceward.model.slots import instant_of
from tests.cli.calls import until
from tests.faces import Face
from tests.planned import Runner, start_at, utc

NEW_YEAR = utc(2026, 1, 1)
DAY_BEFORE = [utc(2026, 1, 2) - timedelta(hours=hours) for hours in range(24, 0, -1)]


@pytest.fixture
def ran() -> list[datetime]:
    return []


def hourly(face: Face, ran: list[datetime], **choices: object) -> Runner:
    return Runner(face, ran.append, "0 * * * *", name="hourly", **choices)


def both_turn(*runners: Runner) -> None:
    for runner in runners:
        runner.turn()


def test_a_new_schedule_starts_at_its_registration_and_runs_each_slot_when_it_comes(
    face: Face, ran: list[datetime]
) -> None:
    start_at(face.clock, utc(2026, 1, 1, 8, 30))
    runner = hourly(face, ran, catch_up="all")
    runner.turn()
    assert ran == []  # nothing of the time before
    runner.sleep_until(utc(2026, 1, 1, 11, 30))
    assert ran == [utc(2026, 1, 1, hour) for hour in (9, 10, 11)]
    assert runner.missed() == []


@pytest.mark.mission("C3")
def test_running_completed_and_failed_are_recorded(face: Face) -> None:
    seen: list[State] = []

    def work(scheduled_at: datetime) -> str:
        entry = face._wait(runner.planned.read(scheduled_at))
        seen.append(entry.state)
        if scheduled_at.hour == 2:
            raise ValueError("no such table")
        return f"at {scheduled_at:%H}"

    runner = Runner(face, work, "0 * * * *", name="report")
    runner.turn()
    runner.sleep_until(utc(2026, 1, 1, 2, 30))
    assert seen == [State.PENDING, State.PENDING]
    done = face._wait(runner.planned.read("2026-01-01T01:00:00Z"))
    assert (done.state, done.value) == (State.COMPLETED, "at 01")
    failed = face._wait(runner.planned.read(utc(2026, 1, 1, 2)))
    assert (failed.state, failed.error) == (State.FAILED, "ValueError: no such table")
    assert failed.record.final


@pytest.mark.mission("C3")
def test_done_and_failed_answer_for_longer_than_anybody_may_catch_up(face: Face, ran: list[datetime]) -> None:
    """At least catch-up age + lease + 1 day: the seed's hour is far below it."""
    runner = hourly(face, ran, catch_up_age="2d", lease="600s")
    runner.turn()
    runner.sleep_until(utc(2026, 1, 1, 1, 30))
    record = face._wait(runner.planned.read(utc(2026, 1, 1, 1))).record
    assert record.valid_until - record.updated_at == (3 * 86_400 + 600) * 1_000_000


# ── a machine that was off for a day ──


def off_for_a_day(face: Face, ran: list[datetime], **choices: object) -> Runner:
    """It ran at 00:00, was off until half past midnight of the next day, and lives on until three."""
    start_at(face.clock, NEW_YEAR - timedelta(minutes=30))
    before = hourly(face, ran, **choices)
    before.turn()
    before.sleep_until(NEW_YEAR + timedelta(minutes=1))
    assert ran == [NEW_YEAR]
    ran.clear()
    del face.once.schedules["hourly"]
    start_at(face.clock, utc(2026, 1, 2, 0, 30))
    runner = hourly(face, ran, **choices)
    runner.turn()
    runner.sleep_until(utc(2026, 1, 2, 3, 30))
    return runner


MISSED = [NEW_YEAR + timedelta(hours=hours) for hours in range(1, 25)]
AFTERWARDS = [utc(2026, 1, 2, hour) for hour in (1, 2, 3)]


@pytest.mark.fault("F49")
def test_without_catching_up_what_was_missed_is_counted_and_told_and_not_run(face: Face, ran: list[datetime]) -> None:
    runner = off_for_a_day(face, ran, catch_up="none")
    assert ran == AFTERWARDS
    assert [(one.count, one.first, one.last) for one in runner.missed()] == [(24, MISSED[0], MISSED[-1])]
    assert [event.reason for event in face.told("missed")] == ["24 runs missed, 2026-01-01T01:00Z to 2026-01-02T00:00Z"]
    assert face.once.counts["missed"] == 1


@pytest.mark.fault("F49")
def test_catching_up_the_last_runs_one_and_misses_the_others(face: Face, ran: list[datetime]) -> None:
    runner = off_for_a_day(face, ran, catch_up="last")
    assert ran == [MISSED[-1], *AFTERWARDS]
    assert [one.count for one in runner.missed()] == [23]


@pytest.mark.fault("F49")
def test_catching_up_all_runs_them_oldest_first(face: Face, ran: list[datetime]) -> None:
    runner = off_for_a_day(face, ran, catch_up="all", catch_up_age="2d")
    assert ran == [*MISSED, *AFTERWARDS]
    assert runner.missed() == []
    assert [one.late for one in runner.told if isinstance(one, Ran)] == [True] * 24 + [False] * 3


@pytest.mark.fault("F49")
def test_catching_up_is_bounded_by_age_and_by_count(face: Face, ran: list[datetime]) -> None:
    runner = off_for_a_day(face, ran, catch_up="all", catch_up_age="10h")
    assert ran == [*MISSED[-10:], *AFTERWARDS]
    assert [one.count for one in runner.missed()] == [14]


@pytest.mark.fault("F49")
def test_catching_up_a_few_takes_the_newest_ones(face: Face, ran: list[datetime]) -> None:
    runner = off_for_a_day(face, ran, catch_up="all", catch_up_count=3)
    assert ran == [*MISSED[-3:], *AFTERWARDS]
    assert sum(one.count for one in runner.missed()) == 21


def test_what_was_missed_is_counted_on_the_cursor_for_ever(face: Face, ran: list[datetime]) -> None:
    runner = off_for_a_day(face, ran, catch_up="none")
    face.clock.advance("400d")
    face.purge()
    again = Runner(face, ran.append, "0 * * * *", name="other")  # the first one's cursor is still there
    again.watch.schedule = runner.planned.schedule
    again.turn()
    again.look()
    cursor = again.watch._cursor
    assert cursor is not None
    assert cursor.missed > 24 + 399 * 24


def test_after_a_silence_without_end_the_missed_are_not_counted_to_the_last(face: Face, ran: list[datetime]) -> None:
    runner = Runner(face, ran.append, "* * * * *", name="minutely", catch_up="last")
    runner.turn()
    face.clock.advance("3650d")
    face.clock.advance("30s")
    runner.turn()
    assert len(ran) == 1
    told = runner.missed()[0]
    assert told.more
    assert str(told).startswith("1438+ runs missed, 2035-12-29T00:01Z to ")


# ── several runners ──


@pytest.mark.mission("C3")
def test_ten_runners_run_each_slot_once_and_tell_what_was_missed_once(face: Face, ran: list[datetime]) -> None:
    runners = [hourly(face.another(), ran, catch_up="last") for _ in range(10)]
    for runner in runners:
        runner.turn()
    for step in ("60m", "60m", "5h", "60m"):
        face.clock.advance(step)
        for runner in runners:
            runner.look()
        for runner in runners:
            runner.turn()
    assert ran == [utc(2026, 1, 1, hour) for hour in (1, 2, 7, 8)]
    face.clock.advance("3m")
    for runner in runners:
        runner.turn()
    assert sum(one.count for runner in runners for one in runner.missed()) == 4


@pytest.mark.mission("C3")
@pytest.mark.rival(24)
def test_the_slot_of_a_runner_that_died_is_run_by_another_once_its_lease_is_over(
    face: Face, ran: list[datetime]
) -> None:
    other = face.another()
    dead, alive = hourly(other, ran, lease="600s"), hourly(face, ran, lease="600s")
    both_turn(dead, alive)
    face.clock.advance("60m")
    key = dead.planned.key(utc(2026, 1, 1, 1))
    silent = other.silent_owner(key, lease="600s")  # it has claimed the slot and is not heard of again
    alive.turn()
    assert ran == []
    alive.sleep_until(utc(2026, 1, 1, 1, 9))
    assert ran == []
    alive.sleep_until(utc(2026, 1, 1, 1, 11))
    assert ran == [utc(2026, 1, 1, 1)]
    assert silent.token < face._wait(alive.planned.read(utc(2026, 1, 1, 1))).token


def test_a_runner_that_dies_before_it_claims_loses_nothing(face: Face, ran: list[datetime]) -> None:
    dead, alive = hourly(face.another(), ran), hourly(face, ran)
    both_turn(dead, alive)
    face.clock.advance("60m")
    dead.look()  # and never works
    alive.turn()
    assert ran == [utc(2026, 1, 1, 1)]


def test_late_runs_go_one_at_a_time_across_all_runners(face: Face, ran: list[datetime]) -> None:
    runners = [hourly(face.another(), ran, catch_up="all", overlap="allow") for _ in range(3)]
    for runner in runners:
        runner.turn()
    face.clock.advance("5h30m")
    key = runners[0].planned.key(utc(2026, 1, 1, 1))
    with face.claim(key):  # somebody else is at the first one
        for runner in runners:
            runner.turn()
        assert ran == []
    for runner in runners:
        runner.turn()
    assert ran == [utc(2026, 1, 1, hour) for hour in (2, 3, 4, 5)]


def test_a_pattern_that_was_changed_is_a_new_schedule_whose_slots_are_still_the_same_runs(
    face: Face, ran: list[datetime]
) -> None:
    before = hourly(face, ran, catch_up="all")
    before.turn()
    before.sleep_until(utc(2026, 1, 1, 2, 59))
    del face.once.schedules["hourly"]
    after = Runner(face, ran.append, "*/30 * * * *", name="hourly", catch_up="all")
    after.turn()
    assert ran == [utc(2026, 1, 1, 1), utc(2026, 1, 1, 2)]  # 00:30, 01:30 and 02:30 are no missed ones
    face.clock.advance("60s")
    before.turn()
    after.turn()
    assert ran[2:] == [utc(2026, 1, 1, 3)]


# ── failures ──


@pytest.mark.mission("C3")
def test_a_failed_slot_is_not_run_again_whatever_it_raised(face: Face) -> None:
    tries: list[datetime] = []

    def work(scheduled_at: datetime) -> None:
        tries.append(scheduled_at)
        raise (ValueError, TimeoutError, ConnectionError)[scheduled_at.hour % 3]

    runners = [Runner(one, work, "0 * * * *", name="report") for one in (face, face.another())]
    for runner in runners:
        runner.turn()
    for _ in range(3):
        face.clock.advance("30m")
        for runner in runners:
            runner.turn()
        face.clock.advance("30m")
        for runner in runners:
            runner.turn()
    assert tries == [utc(2026, 1, 1, hour) for hour in (1, 2, 3)]


@pytest.mark.mission("C3")
def test_a_failed_slot_is_run_again_if_that_was_declared(face: Face) -> None:
    tries: list[datetime] = []

    def work(scheduled_at: datetime) -> None:
        tries.append(scheduled_at)
        raise TimeoutError if scheduled_at.hour == 2 else ConnectionError

    runner = Runner(face, work, "0 * * * *", name="r", retry=ConnectionError, retry_delay="5m", max_attempts=3)
    runner.turn()
    runner.sleep_until(utc(2026, 1, 1, 1, 4))
    assert len(tries) == 1
    runner.sleep_until(utc(2026, 1, 1, 1, 59))
    assert tries == [utc(2026, 1, 1, 1)] * 3
    runner.sleep_until(utc(2026, 1, 1, 2, 59))
    assert tries[3:] == [utc(2026, 1, 1, 2)]  # a timeout was not asked for


@pytest.mark.mission("C3")
def test_a_failed_slot_is_run_again_if_somebody_asks_for_it(face: Face) -> None:
    tries: list[datetime] = []

    def work(scheduled_at: datetime) -> str:
        tries.append(scheduled_at)
        if len(tries) < 2:
            raise ValueError("not yet")
        return "done"

    runner = Runner(face, work, "0 * * * *", name="report")
    runner.turn()
    runner.sleep_until(utc(2026, 1, 1, 1, 30))
    assert face._wait(runner.planned.tick(utc(2026, 1, 1, 1))).kind == "failed"
    assert len(tries) == 1
    asked = face._wait(runner.planned.tick(utc(2026, 1, 1, 1), rerun=True))
    assert isinstance(asked, Executed)
    assert (asked.value, asked.attempt) == ("done", 2)
    assert face._wait(runner.planned.tick(utc(2026, 1, 1, 1), rerun=True)).kind == "replayed"  # it did not fail
    assert len(tries) == 2


# ── overlap ──


def test_a_run_that_takes_longer_than_its_period_makes_the_next_one_skipped(face: Face, ran: list[datetime]) -> None:
    long, other = hourly(face, ran), hourly(face.another(), ran)
    both_turn(long, other)
    going = face.silent_owner(long.planned.schedule.turn, lease="90m")  # a run that takes that long
    face.clock.advance("60m")
    both_turn(long, other)
    assert ran == []
    assert going.state is State.PENDING
    assert "skipped" in long.outcomes() + other.outcomes()
    record = face._wait(long.planned.read(utc(2026, 1, 1, 1))).record
    assert (record.state, record.error_type, record.final) == (State.FAILED, "Skipped", True)
    face.clock.advance("60m")
    both_turn(long, other)
    assert ran == [utc(2026, 1, 1, 2)]


@pytest.mark.parametrize("overlap", ["wait", "allow", "skip"])
def test_overlapping_runs_wait_or_are_allowed_or_are_skipped(face: Face, overlap: str) -> None:
    inside: list[tuple[str, datetime]] = []
    other = face.another()

    def work(scheduled_at: datetime) -> None:
        inside.append(("in", scheduled_at))
        if scheduled_at.hour == 1:
            face.clock.advance("60m")
            later.look()
            if overlap == "wait":
                waiting.append(face.start(later.work))
            else:
                face.start(later.work).result(20)
        inside.append(("out", scheduled_at))

    waiting: list[object] = []
    first = Runner(face, work, "0 * * * *", name="r", overlap=overlap, lease="1d")
    later = Runner(other, work, "0 * * * *", name="r", overlap=overlap, lease="1d")
    both_turn(first, later)
    face.clock.advance("60m")
    first.turn()
    for one in waiting:
        one.result(20)  # type: ignore[attr-defined]  # a Future
    one, two = utc(2026, 1, 1, 1), utc(2026, 1, 1, 2)
    expected = {
        "wait": [("in", one), ("out", one), ("in", two), ("out", two)],
        "allow": [("in", one), ("in", two), ("out", two), ("out", one)],
        "skip": [("in", one), ("out", one)],
    }
    assert inside == expected[overlap]


def test_the_turn_of_a_runner_that_died_is_free_after_its_lease(face: Face, ran: list[datetime]) -> None:
    other = face.another()
    runner = hourly(face, ran, lease="600s")
    runner.turn()
    other.silent_owner(runner.planned.schedule.turn, lease="600s")
    runner.sleep_until(utc(2026, 1, 1, 1, 30))
    assert ran == [utc(2026, 1, 1, 1)]


def test_a_slot_that_was_parked_keeps_no_other_from_its_turn(face: Face, ran: list[datetime]) -> None:
    """A crash between effect and record: nobody runs that slot again, but the schedule goes on."""
    runner = hourly(face, ran, lease="600s", after_crash="park", max_attempts=1)
    runner.turn()
    face.clock.advance("60m")
    runner.look()
    other = face.another()
    other.silent_owner(runner.planned.key(utc(2026, 1, 1, 1)), lease="600s", after_crash="park")
    turn_of_another(other, runner)
    runner.crew.works.clear()
    runner.watch._ours.clear()
    runner.sleep_until(utc(2026, 1, 1, 3, 30))
    assert face._wait(runner.planned.read(utc(2026, 1, 1, 1))).state is State.PARKED
    assert ran == [utc(2026, 1, 1, 2), utc(2026, 1, 1, 3)]


# ── trouble ──


def test_a_store_that_does_not_answer_delays_a_slot_and_loses_none(face: Face, ran: list[datetime]) -> None:
    runner = hourly(face, ran)
    runner.turn()
    with face.store_trouble("read"):
        runner.sleep_until(utc(2026, 1, 1, 1, 0) + timedelta(seconds=20))
    assert ran == []
    runner.sleep_until(utc(2026, 1, 1, 1, 1))
    assert ran == [utc(2026, 1, 1, 1)]
    assert face.told("schedule_delayed")


@pytest.mark.parametrize("verb", ["claim", "settle", "forget"])
def test_lost_replies_neither_double_a_run_nor_a_count(face: Face, ran: list[datetime], verb: str) -> None:
    runner = hourly(face, ran)
    runner.turn()
    face.clock.advance("5h")
    with face.store_trouble(verb, times=2, applied=True):
        for _ in range(4):
            face.clock.advance("30s")
            runner.turn()
    runner.sleep_until(utc(2026, 1, 1, 7, 30))
    assert ran == [utc(2026, 1, 1, hour) for hour in (5, 6, 7)]
    cursor = runner.watch._cursor
    assert cursor is not None
    assert cursor.missed == sum(one.count for one in runner.missed()) == 4


def test_a_stopped_client_begins_no_more_runs(face: Face, ran: list[datetime]) -> None:
    runner = hourly(face, ran)
    runner.turn()
    face.clock.advance("60m")
    runner.look()
    face.once.stop()
    runner.work()
    runner.look()
    assert ran == []


def test_a_run_that_waits_for_its_turn_when_the_client_stops_is_left_to_others(face: Face, ran: list[datetime]) -> None:
    other = face.another()
    runner = hourly(face, ran, overlap="wait", lease="1d")
    runner.turn()
    turn_of_another(other, runner)
    face.clock.advance("60m")
    runner.look()
    waiting = face.start(runner.work)
    until(lambda: other._wait(other.once.read(runner.planned.key(utc(2026, 1, 1, 1)))) is not None)
    face.once.stop()
    waiting.result(20)
    assert ran == []
    assert other._wait(other.once.read(runner.planned.key(utc(2026, 1, 1, 1)))) is None  # free: neither run nor skipped


def test_a_late_run_waits_for_its_turn_where_one_on_time_is_skipped(face: Face, ran: list[datetime]) -> None:
    other = face.another()
    runner = hourly(face, ran, overlap="skip", catch_up="all", lease="1d")
    runner.turn()
    lock = turn_of_another(other, runner)
    face.clock.advance("90m")
    runner.look()
    waiting = face.start(runner.work)
    until(lambda: other._wait(other.once.read(runner.planned.key(utc(2026, 1, 1, 1)))) is not None)
    assert ran == []
    other.drive(give_up(lock))
    waiting.result(20)
    assert ran == [utc(2026, 1, 1, 1)]


def turn_of_another(other: Face, runner: Runner) -> Held:
    """Somebody else's run is still going."""
    job = Run(runner.planned.schedule, 0, runner.planned.job(0)).turn_job()
    lock = untaken(other.once.engine, job)
    contextvars.Context().run(other.drive, take(lock))
    return lock


def test_whoever_ran_a_slot_moves_the_cursor_over_it_at_once(face: Face, ran: list[datetime]) -> None:
    """A machine that is off for long must not take for missed what was done right before."""
    runner = hourly(face, ran)
    runner.turn()
    face.clock.advance("60m")
    runner.look()
    runner.work()
    assert runner.watch.is_due()  # a run has ended, so there may be something to do
    runner.look()
    runner.look()
    cursor = runner.watch._cursor
    assert cursor is not None
    assert cursor.considered == instant_of(utc(2026, 1, 1, 1))
    assert not runner.watch.is_due()


def test_of_two_who_see_the_same_missed_runs_only_the_one_that_moves_the_cursor_tells(
    face: Face, ran: list[datetime]
) -> None:
    first, second = hourly(face, ran), hourly(face.another(), ran)
    both_turn(first, second)
    face.clock.advance("150m")
    first.turn()
    now = instant_of(utc(2026, 1, 1, 2))
    seen = Agenda(now=(), late=None, considered=now, missed=(now,), settled=(), look_at=None)
    second.face.drive(second.watch._advance(seen, more=False))  # what it saw before the first one moved it
    assert [one.count for one in first.missed() + second.missed()] == [2]


@pytest.mark.fault("F44")
def test_a_slot_comes_by_the_stores_clock_and_not_by_ours(face: Face, ran: list[datetime]) -> None:
    start_at(face.clock, utc(2026, 1, 1, 0, 50))
    runner = hourly(face, ran)
    runner.turn()
    face.clock.advance("20m")
    face.clock.set_back("15m")  # it is 00:55 there, and a machine that counts by itself has 01:10
    runner.turn()
    assert ran == []
    runner.sleep_until(utc(2026, 1, 1, 1, 1))
    assert ran == [utc(2026, 1, 1, 1)]
