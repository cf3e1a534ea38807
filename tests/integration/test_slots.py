"""Runs of a schedule, as far as the core goes: the key is the scheduled instant, never the time of the fire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from onceward import AlreadyDone
from tests.clients import SyncClient

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.fault("F48")
def test_the_hour_that_comes_twice_is_two_slots_and_the_same_instant_in_two_zones_is_one(client: SyncClient) -> None:
    """On 2026-10-25 Berlin has 02:30 twice. A key made of the local time would skip the second run."""
    ran: list[datetime] = []

    @client(name="report", key=lambda scheduled: ("report", scheduled), fingerprint="none")
    def report(scheduled: datetime) -> None:
        ran.append(scheduled.astimezone(UTC))

    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
    second = first.replace(fold=1)
    for scheduled in (first, second, first.astimezone(UTC), second.astimezone(UTC)):
        report(scheduled)
    assert ran == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)]


@pytest.mark.fault("F48")
def test_the_gap_in_spring_neither_loses_nor_doubles_a_slot(client: SyncClient) -> None:
    """02:30 does not exist on 2026-03-29: as an instant it is 03:30, and both notations mean one run."""

    @client(name="report", key=lambda scheduled: ("report", scheduled), fingerprint="none")
    def report(scheduled: datetime) -> str:
        return scheduled.astimezone(UTC).isoformat()

    missing = datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN)
    assert report.outcome(missing).executed
    assert report.outcome(datetime(2026, 3, 29, 3, 30, tzinfo=BERLIN)).replayed


@pytest.mark.fault("F49")
@pytest.mark.parametrize(("on_done", "expected"), [("replay", "sent"), ("skip", None), ("raise", AlreadyDone)])
def test_a_late_or_early_fire_of_a_slot_is_the_same_run_and_gets_what_was_declared(
    client: SyncClient, on_done: str, expected: object
) -> None:
    sent: list[datetime] = []

    @client(name="mails", key=lambda scheduled: ("mails", scheduled), window="7d", on_done=on_done)
    def mails(scheduled: datetime) -> str:
        sent.append(scheduled)
        return "sent"

    slot = datetime(2026, 3, 2, 8, 5, tzinfo=UTC)
    assert mails(slot) == "sent"
    client.clock.advance("26h")  # another machine fires late, long after the next day's slot
    if expected is AlreadyDone:
        with pytest.raises(AlreadyDone):
            mails(slot)
    else:
        assert mails(slot) == expected
    missed = slot + timedelta(minutes=5)
    assert mails(missed) == "sent"  # it was not fired in time: it runs late, under its own slot
    assert sent == [slot, missed]
