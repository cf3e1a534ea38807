"""What is due of a schedule: the rules that every runner must follow, each alone."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.protocol.record import Record, RecordState
from onceward.schedules.definition import Slots, checked_slots
from onceward.schedules.due import Agenda, OpenSlot, agenda

MINUTE = 60_000_000
HOUR = 60 * MINUTE
NOW = 1_000 * HOUR


def record(state: RecordState, claimed_at: int = NOW, **facts: Any) -> Record:
    return Record(id=b"i", scope="s", key="k", state=state, token=1, claimed_at=claimed_at, **facts)


def due(slots: Slots, *open_slots: tuple[int, Record | None]) -> Agenda:
    """Return the agenda for slots given by how long ago they were."""
    return agenda([OpenSlot(NOW - ago, found) for ago, found in open_slots], slots, NOW, NOW - 900 * HOUR)


DONE = record(RecordState.COMPLETED)
REFUSED = record(RecordState.FAILED, final=True)
RUNNING = record(RecordState.PENDING, lease_until=NOW + MINUTE)
SILENT = record(RecordState.PENDING, lease_until=NOW)
LATE_RUN = record(RecordState.PENDING, claimed_at=NOW, lease_until=NOW + MINUTE)


@pytest.mark.parametrize(
    "settled", [DONE, REFUSED, record(RecordState.PARKED), record(RecordState.COMPLETED, valid_until=NOW - 1)]
)
def test_what_is_settled_is_passed_even_if_its_window_is_over(settled: Record) -> None:
    found = due(Slots(), (HOUR, settled), (0, settled))
    assert (found.now, found.late, found.missed) == ((), None, ())
    assert found.considered == NOW
    assert found.settled == (NOW - HOUR, NOW)


def test_the_cursor_stops_before_the_first_that_is_open() -> None:
    assert due(Slots(), (3 * HOUR, DONE), (2 * HOUR, RUNNING), (HOUR, DONE)).considered == NOW - 3 * HOUR
    assert due(Slots(), (HOUR, None), (0, None)).considered == NOW - HOUR  # missed
    assert due(Slots(), (0, None)).considered == NOW - 900 * HOUR  # on time: begun, but not settled


@pytest.mark.fault("F49")
def test_between_grace_and_giving_up_no_runner_begins_a_slot_or_reports_it_missed() -> None:
    """Otherwise one runner begins it in time, and another one reports it as missed a moment later."""
    slots = checked_slots({"grace": "60s"})
    on_time, between, given_up = (due(slots, (ago, None)) for ago in (MINUTE, MINUTE + 1, 2 * MINUTE + 1))
    assert (on_time.now, on_time.missed) == ((NOW - MINUTE,), ())
    assert (between.now, between.missed, between.check_at) == ((), (), NOW - (MINUTE + 1) + 2 * MINUTE + 1)
    assert (given_up.now, given_up.missed) == ((), (NOW - (2 * MINUTE + 1),))


@pytest.mark.parametrize("catch_up", ["none", "last", "all"])
def test_a_crash_is_no_missed_slot_whatever_is_caught_up(catch_up: Any) -> None:
    slots = checked_slots({"catch_up": catch_up})
    assert due(slots, (HOUR, SILENT), (0, DONE)).late == NOW - HOUR
    assert due(slots, (25 * HOUR, SILENT)).missed == (NOW - 25 * HOUR,)


def test_the_last_is_not_caught_up_if_a_newer_one_ran_runs_or_is_due() -> None:
    slots = checked_slots({"catch_up": "last"})
    assert due(slots, (3 * HOUR, None), (2 * HOUR, None)).late == NOW - 2 * HOUR
    for newer in (DONE, RUNNING, None):
        found = due(slots, (3 * HOUR, None), (2 * HOUR, None), (0, newer))
        assert found.late is None
        assert found.missed == (NOW - 3 * HOUR, NOW - 2 * HOUR)


def test_the_next_late_one_waits_for_the_late_one_before_but_not_for_a_long_one() -> None:
    slots = checked_slots({"catch_up": "all"})
    assert due(slots, (3 * HOUR, LATE_RUN), (2 * HOUR, None)).late is None
    long_one = record(RecordState.PENDING, claimed_at=NOW - 3 * HOUR, lease_until=NOW + MINUTE)
    assert due(slots, (3 * HOUR, long_one), (2 * HOUR, None)).late == NOW - 2 * HOUR


def test_a_retry_is_looked_for_when_it_is_due() -> None:
    waiting = record(RecordState.FAILED, retry_at=NOW + MINUTE)
    assert due(Slots(), (HOUR, waiting)).check_at == NOW + MINUTE
    assert due(Slots(), (HOUR, record(RecordState.FAILED, retry_at=NOW))).late == NOW - HOUR


def test_a_run_elsewhere_is_looked_at_when_its_lease_ends_and_one_of_ours_is_not() -> None:
    assert due(Slots(), (0, RUNNING)).check_at == NOW + MINUTE
    ours = agenda([OpenSlot(NOW, RUNNING, ours=True)], Slots(), NOW, 0)
    assert (ours.now, ours.check_at) == ((), None)


def test_a_slot_that_was_made_free_runs_again_if_it_is_on_time() -> None:
    assert due(Slots(), (0, record(RecordState.FREE))).now == (NOW,)
