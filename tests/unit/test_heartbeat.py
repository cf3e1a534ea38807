"""The keeper of leases: when it renews and settles what, pass by pass on a fake clock."""

from __future__ import annotations

import pytest

from onceward.engine.lease import Lease
from onceward.protocol.policy import SECOND
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Fail
from tests.unit.heartbeat_bench import LEASE, Bench, bench, lease_of

__all__ = ["bench"]  # fixtures, told here so that pytest finds them


# ── what could not be settled at once ──


def failure(hold: Lease) -> Fail:
    record = hold.record
    return Fail(record.id, record.token, record.nonce, "ValueError", "no", final=False, known=False)


def test_what_its_owner_could_not_settle_is_tried_again_and_told_once(bench: Bench) -> None:
    hold = bench.hold()
    bench.heartbeat.drop(hold)
    bench.heartbeat.settle_later(hold, failure(hold))
    bench.network.lose_requests("settle")
    for _ in range(3):
        bench.after(10)
    assert bench.stored(hold).state is RecordState.PENDING
    bench.network.heal()
    bench.after(10)
    bench.after(10)
    assert bench.stored(hold).state is RecordState.FAILED
    assert [event.name for event in bench.events] == ["failed"]


def test_what_could_never_be_settled_lapses_and_is_forgotten(bench: Bench) -> None:
    hold = bench.hold()
    bench.heartbeat.drop(hold)
    bench.heartbeat.settle_later(hold, failure(hold))
    bench.network.lose_requests("settle")
    bench.after(LEASE + 1)
    bench.network.heal()
    bench.after(1)
    assert bench.stored(hold).state is RecordState.PENDING
    assert not bench.heartbeat._delayed


# ── when ──


@pytest.mark.mission("B3")
def test_a_lease_is_renewed_every_fifth_of_it_and_not_before(bench: Bench) -> None:
    bench.hold()
    bench.after(119.9)
    assert bench.network.calls["renew"] == 0
    bench.after(0.1)
    assert bench.network.calls["renew"] == 1
    bench.after(119.9)
    assert bench.network.calls["renew"] == 1
    bench.after(0.1)
    assert bench.network.calls["renew"] == 2


def test_a_renewed_lease_ends_a_whole_lease_after_it_was_asked_for(bench: Bench) -> None:
    hold = bench.hold()
    bench.after(150)
    assert hold.ends == 150 + LEASE
    assert bench.stored(hold).lease_until == bench.clock.now() + LEASE * SECOND


def test_the_lease_is_counted_from_before_the_question_not_from_the_answer(bench: Bench) -> None:
    """The store may have granted it at any time in between; only the earlier end is safe."""
    hold = lease_of(bench.record("work"), LEASE)
    asked_at = bench.now()
    bench.clock.advance(30)  # the answer took its time
    bench.heartbeat.take(hold, asked_at)
    assert hold.ends == asked_at + LEASE


@pytest.mark.fault("F52")
def test_a_renewal_may_take_a_sixth_of_the_shortest_lease_at_most(bench: Bench) -> None:
    bench.hold("long", 600)
    bench.hold("short", 60)
    bench.after(120)
    assert bench.network.timeouts["renew"] == [10.0]


@pytest.mark.parametrize(("leases", "calls"), [(1, [1]), (256, [256]), (257, [256, 1]), (600, [256, 256, 88])])
def test_renewals_travel_in_batches_of_256(bench: Bench, leases: int, calls: list[int]) -> None:
    for number in range(leases):
        bench.hold(f"work {number}")
    bench.after(120)
    assert bench.network.sizes == calls
    assert len(bench.told("renewed")) == leases


def test_what_is_being_settled_is_kept_alive_until_the_store_has_answered(bench: Bench) -> None:
    """A settlement may be repeated for a whole lease; meanwhile nobody must take over."""
    hold = bench.hold()
    hold.settling = True
    bench.after(120)
    assert bench.network.calls["renew"] == 1
    assert hold.ends == 120 + LEASE


def test_the_keeper_does_not_spin_on_a_lease_that_was_lost_while_it_is_being_settled(bench: Bench) -> None:
    hold = bench.hold()
    bench.clock.advance(LEASE)
    bench.taken_over(hold)
    hold.settling = True
    bench.heartbeat.tick()
    bench.heartbeat.tick()
    assert bench.network.calls["renew"] == 1


def test_what_was_dropped_is_not_renewed_any_more(bench: Bench) -> None:
    bench.heartbeat.drop(bench.hold())
    bench.after(120)
    assert bench.network.calls["renew"] == 0
    assert not bench.heartbeat._holds
