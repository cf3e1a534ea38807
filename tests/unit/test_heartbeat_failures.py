"""Renewals that fail, leases that are overdue, and leases that are lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from onceward import LeaseLost, Once
from onceward.errors import LeaseOverdue
from onceward.protocol.policy import SECOND
from onceward.protocol.requests import Answer, Renewal, Verdict
from tests.unit.heartbeat_harness import LEASE, Harness, harness

__all__ = ["harness"]  # fixtures, imported here so that pytest finds them


@pytest.mark.fault("F45")
@pytest.mark.mission("B3")
def test_a_failed_renewal_is_logged_and_tried_again_long_before_the_lease_ends(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    hold = harness.hold()
    harness.network.lose_requests("renew", 1)
    harness.after(120)
    assert [event.key for event in harness.reported("renewal_failed")] == ["work"]
    assert [one.levelno for one in caplog.records if "renewal_failed" in one.message] == [logging.WARNING]
    assert 120 + 12 <= hold.renew_at <= 120 + 36  # a tenth to three tenths of an interval
    harness.after(36)
    assert harness.network.calls["renew"] == 2
    assert not hold.overdue
    assert hold.ends == 156 + LEASE


@pytest.mark.fault("F45")
def test_retries_are_spread_so_that_a_store_that_comes_back_is_not_stampeded(harness: Harness) -> None:
    holds = [harness.hold(f"work {number}") for number in range(50)]
    harness.network.lose_requests("renew")
    harness.after(120)
    assert len({round(hold.renew_at, 3) for hold in holds}) > 25


@pytest.mark.fault("F45")
def test_renewing_continues_until_the_lease_expires_and_beyond(harness: Harness) -> None:
    hold = harness.hold()
    harness.network.lose_requests("renew")
    while harness.now() < LEASE - 4:
        harness.after(4)
    assert (hold.overdue, harness.reported("overdue")) == (False, [])
    assert harness.network.calls["renew"] >= 480 / 36
    for _ in range(30):
        harness.after(4)
    assert (hold.overdue, hold.lost) == (True, False)
    assert len(harness.reported("overdue")) == 1, "reported once, not at every retry"
    harness.network.heal()
    harness.after(36)
    assert not hold.overdue
    assert harness.stored(hold).lease_until == harness.clock.now() + LEASE * SECOND


@pytest.mark.fault("F53")
def test_a_renewal_whose_reply_was_lost_is_repeated_and_does_no_harm(harness: Harness) -> None:
    hold = harness.hold()
    harness.network.lose_replies("renew", 1)
    harness.after(120)
    harness.after(36)
    assert not hold.lost
    assert hold.ends == 156 + LEASE


@pytest.mark.fault("F41")
def test_a_lease_taken_by_another_owner_is_reported_lost_once_and_not_renewed_again(harness: Harness) -> None:
    hold = harness.hold()
    rung: list[str] = []
    hold.on_lost = lambda: rung.append("lost")
    harness.clock.advance(LEASE)
    harness.taken_over(hold)
    before = harness.stored(hold)
    harness.heartbeat.tick()
    assert hold.lost
    assert rung == ["lost"]
    assert not harness.heartbeat.held()
    harness.after(LEASE)
    assert len(harness.reported("lost")) == 1
    assert harness.network.calls["renew"] == 1
    assert harness.stored(hold) == before


def test_a_lease_that_its_owner_settled_meanwhile_is_not_lost(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer LOST also comes when the owner itself has just completed."""
    hold = harness.hold()
    rung: list[str] = []
    hold.on_lost = lambda: rung.append("lost")
    harness.clock.advance(LEASE)
    harness.taken_over(hold)
    sound = harness.store.renew

    async def renew(renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        hold.is_settling = True  # begun after the heartbeat had checked
        return await sound(renewals, timeout=timeout)

    monkeypatch.setattr(harness.store, "renew", renew)
    harness.heartbeat.tick()
    assert not hold.lost
    assert rung == []


def test_a_lease_that_its_owner_claimed_anew_meanwhile_is_not_lost(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saga claims again after an unanswered journal write, while the renewal of the old lease is in flight."""
    hold = harness.hold()
    sound = harness.store.renew

    async def renew(renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        harness.heartbeat.drop(hold)
        harness.taken_over(hold)
        hold.record, hold.nonce = harness.stored(hold), b"another"
        harness.heartbeat.take(hold, harness.now())
        return await sound(renewals, timeout=timeout)

    harness.clock.advance(LEASE)
    monkeypatch.setattr(harness.store, "renew", renew)
    harness.heartbeat.tick()
    assert not hold.lost
    assert harness.heartbeat.held() == [hold]


def test_one_lost_lease_does_not_stop_the_renewal_of_the_others(harness: Harness) -> None:
    lost, kept = harness.hold("lost"), harness.hold("kept")
    harness.clock.advance(LEASE)
    harness.taken_over(lost)
    harness.heartbeat.tick()
    assert lost.lost
    assert not kept.lost
    assert kept.ends == 2 * LEASE


def test_a_record_that_a_newer_version_rewrote_is_not_taken_for_lost(harness: Harness) -> None:
    hold = harness.hold()

    async def newer(*_: object, **__: object) -> list[Answer]:
        return [Answer(Verdict.SKEW, harness.stored(hold), harness.clock.now())]

    harness.store.inner = type("Newer", (), {"renew": staticmethod(newer), "clone": lambda self: self, "open": newer})()
    harness.after(120)
    assert not hold.lost
    assert len(harness.reported("renewal_failed")) == 1


def test_check_distinguishes_overdue_from_lost(harness: Harness) -> None:
    once = Once(harness.store, lease=LEASE)
    once.heartbeat.close()
    once.heartbeat = once.engine.heartbeat = harness.heartbeat
    once.engine.runtime.monotonic = harness.now  # type: ignore[method-assign]
    with pytest.raises(LeaseLost) as lost, once.claim("work") as claim:
        claim.check()
        harness.network.lose_requests("renew")
        harness.after(LEASE)
        with pytest.raises(LeaseOverdue):
            claim.check()
        harness.network.heal()
        harness.after(36)
        claim.check()  # recovered
        harness.clock.advance(LEASE)
        harness.taken_over(harness.heartbeat.held()[0])
        with pytest.raises(LeaseOverdue):
            claim.check()  # the store has not reported it yet, but our own clock shows it
        harness.heartbeat.tick()
        claim.check()
    assert type(lost.value) is LeaseLost
