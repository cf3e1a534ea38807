"""Renewals that fail, leases that are overdue, and leases that are lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from onceward import LeaseLost, Once
from onceward.errors import LeaseOverdue
from onceward.protocol.policy import SECOND
from onceward.protocol.requests import Answer, Renewal, Verdict
from tests.unit.heartbeat_bench import LEASE, Bench, bench

__all__ = ["bench"]  # fixtures, told here so that pytest finds them


@pytest.mark.fault("F45")
@pytest.mark.mission("B3")
def test_a_failed_renewal_is_logged_and_tried_again_long_before_the_lease_ends(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    hold = bench.hold()
    bench.network.lose_requests("renew", 1)
    bench.after(120)
    assert [event.key for event in bench.told("renewal_failed")] == ["work"]
    assert [one.levelno for one in caplog.records if "renewal_failed" in one.message] == [logging.WARNING]
    assert 120 + 12 <= hold.renew_at <= 120 + 36  # a tenth to three tenths of an interval
    bench.after(36)
    assert bench.network.calls["renew"] == 2
    assert not hold.overdue
    assert hold.ends == 156 + LEASE


@pytest.mark.fault("F45")
def test_retries_are_spread_so_that_a_store_that_comes_back_is_not_stampeded(bench: Bench) -> None:
    holds = [bench.hold(f"work {number}") for number in range(50)]
    bench.network.lose_requests("renew")
    bench.after(120)
    assert len({round(hold.renew_at, 3) for hold in holds}) > 25


@pytest.mark.fault("F45")
def test_renewing_goes_on_until_the_lease_lapses_and_beyond(bench: Bench) -> None:
    hold = bench.hold()
    bench.network.lose_requests("renew")
    while bench.now() < LEASE - 4:
        bench.after(4)
    assert (hold.overdue, bench.told("overdue")) == (False, [])
    assert bench.network.calls["renew"] >= 480 / 36
    for _ in range(30):
        bench.after(4)
    assert (hold.overdue, hold.lost) == (True, False)
    assert len(bench.told("overdue")) == 1, "told once, not at every retry"
    bench.network.heal()
    bench.after(36)
    assert not hold.overdue
    assert bench.stored(hold).lease_until == bench.clock.now() + LEASE * SECOND


@pytest.mark.fault("F53")
def test_a_renewal_whose_reply_was_lost_is_repeated_and_does_no_harm(bench: Bench) -> None:
    hold = bench.hold()
    bench.network.lose_replies("renew", 1)
    bench.after(120)
    bench.after(36)
    assert not hold.lost
    assert hold.ends == 156 + LEASE


@pytest.mark.fault("F41")
def test_another_owner_means_lost_is_told_once_and_ends_the_care(bench: Bench) -> None:
    hold = bench.hold()
    rung: list[str] = []
    hold.on_lost = lambda: rung.append("lost")
    bench.clock.advance(LEASE)
    bench.taken_over(hold)
    before = bench.stored(hold)
    bench.heartbeat.tick()
    assert hold.lost
    assert rung == ["lost"]
    assert not bench.heartbeat._holds
    bench.after(LEASE)
    assert len(bench.told("lost")) == 1
    assert bench.network.calls["renew"] == 1
    assert bench.stored(hold) == before


def test_a_lease_that_its_owner_settled_meanwhile_is_not_lost(bench: Bench) -> None:
    """The answer LOST also comes when the owner itself has just completed."""
    hold = bench.hold()
    rung: list[str] = []
    hold.on_lost = lambda: rung.append("lost")
    bench.clock.advance(LEASE)
    bench.taken_over(hold)
    due = bench.heartbeat.due()
    hold.settling = True  # begun after the keeper had looked
    bench.heartbeat._renew(due)
    assert not hold.lost
    assert rung == []


def test_a_lease_that_its_owner_claimed_anew_meanwhile_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saga does so after a line without an answer. The keeper's question about the old one is still under way."""
    hold = bench.hold()
    sound = bench.store.renew

    async def renew(renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        bench.heartbeat.drop(hold)
        bench.taken_over(hold)
        hold.record, hold.nonce = bench.stored(hold), b"another"
        bench.heartbeat.take(hold, bench.now())
        return await sound(renewals, timeout=timeout)

    bench.clock.advance(LEASE)
    monkeypatch.setattr(bench.store, "renew", renew)
    bench.heartbeat.tick()
    assert not hold.lost
    assert bench.heartbeat._holds == {b"another": hold}


def test_one_lost_lease_does_not_stop_the_renewal_of_the_others(bench: Bench) -> None:
    lost, kept = bench.hold("lost"), bench.hold("kept")
    bench.clock.advance(LEASE)
    bench.taken_over(lost)
    bench.heartbeat.tick()
    assert lost.lost
    assert not kept.lost
    assert kept.ends == 2 * LEASE


def test_a_record_that_a_newer_version_rewrote_is_not_taken_for_lost(bench: Bench) -> None:
    hold = bench.hold()

    async def newer(*_: object, **__: object) -> list[Answer]:
        return [Answer(Verdict.SKEW, bench.stored(hold), bench.clock.now())]

    bench.store.inner = type("Newer", (), {"renew": staticmethod(newer), "clone": lambda self: self, "open": newer})()
    bench.after(120)
    assert not hold.lost
    assert len(bench.told("renewal_failed")) == 1


def test_check_tells_overdue_from_lost(bench: Bench) -> None:
    once = Once(bench.store, lease=LEASE)
    once.heartbeat.close()
    once.heartbeat = once.engine.heartbeat = bench.heartbeat
    once.engine.runtime.monotonic = bench.now  # type: ignore[method-assign]
    with pytest.raises(LeaseLost) as lost, once.claim("work") as claim:
        claim.check()
        bench.network.lose_requests("renew")
        bench.after(LEASE)
        with pytest.raises(LeaseOverdue):
            claim.check()
        bench.network.heal()
        bench.after(36)
        claim.check()  # recovered
        bench.clock.advance(LEASE)
        bench.taken_over(next(iter(bench.heartbeat._holds.values())))
        with pytest.raises(LeaseOverdue):
            claim.check()  # nobody has told us yet, but our own clock says so
        bench.heartbeat.tick()
        claim.check()
    assert type(lost.value) is LeaseLost
