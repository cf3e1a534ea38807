"""The heartbeat: when it renews and settles what, pass by pass on a fake clock."""

from __future__ import annotations

import gc

import pytest

from onceward.engine.lease import Lease
from onceward.protocol.policy import SECOND
from onceward.protocol.record import RecordState
from onceward.protocol.requests import Fail
from tests.unit.heartbeat_harness import LEASE, Harness, harness, lease_of

__all__ = ["harness"]  # fixtures, imported here so that pytest finds them


@pytest.mark.fault("F27")
def test_a_lease_that_no_object_refers_to_is_no_longer_renewed(harness: Harness) -> None:
    """Nothing can settle it any more. Otherwise its key would stay locked for as long as the process lives."""
    harness.hold("kept")
    harness.hold("dropped")
    harness.owned.pop()
    gc.collect()
    harness.after(LEASE / 2)
    assert [event.key for event in harness.reported("renewed")] == ["kept"]
    assert len(harness.heartbeat.held()) == 1


# ── what could not be settled immediately ──


def failure(hold: Lease) -> Fail:
    record = hold.record
    return Fail(record.id, record.token, record.nonce, "ValueError", "no", final=False, known=False)


def test_what_its_owner_could_not_settle_is_tried_again_and_reported_once(harness: Harness) -> None:
    hold = harness.hold()
    harness.heartbeat.drop(hold)
    harness.heartbeat.settle_later(hold, failure(hold))
    harness.network.lose_requests("settle")
    for _ in range(3):
        harness.after(10)
    assert harness.stored(hold).state is RecordState.PENDING
    harness.network.heal()
    harness.after(10)
    harness.after(10)
    assert harness.stored(hold).state is RecordState.FAILED
    assert [event.name for event in harness.events] == ["failed"]


def test_what_could_never_be_settled_lapses_and_is_forgotten(harness: Harness) -> None:
    hold = harness.hold()
    harness.heartbeat.drop(hold)
    harness.heartbeat.settle_later(hold, failure(hold))
    harness.network.lose_requests("settle")
    harness.after(LEASE + 1)
    harness.network.heal()
    harness.after(1)
    assert harness.stored(hold).state is RecordState.PENDING
    assert not harness.heartbeat.delayed()


# ── when ──


@pytest.mark.mission("B3")
def test_a_lease_is_renewed_every_fifth_of_it_and_not_before(harness: Harness) -> None:
    harness.hold()
    harness.after(119.9)
    assert harness.network.calls["renew"] == 0
    harness.after(0.1)
    assert harness.network.calls["renew"] == 1
    harness.after(119.9)
    assert harness.network.calls["renew"] == 1
    harness.after(0.1)
    assert harness.network.calls["renew"] == 2


def test_a_renewed_lease_ends_a_whole_lease_after_it_was_asked_for(harness: Harness) -> None:
    hold = harness.hold()
    harness.after(150)
    assert hold.ends == 150 + LEASE
    assert harness.stored(hold).lease_until == harness.clock.now() + LEASE * SECOND


def test_the_lease_is_counted_from_before_the_question_not_from_the_answer(harness: Harness) -> None:
    """The store may have granted it at any time in between; only the earlier end is safe."""
    hold = lease_of(harness.record("work"), LEASE)
    asked_at = harness.now()
    harness.clock.advance(30)  # the answer took its time
    harness.heartbeat.take(hold, asked_at)
    assert hold.ends == asked_at + LEASE


@pytest.mark.fault("F52")
def test_a_renewal_may_take_a_sixth_of_the_shortest_lease_at_most(harness: Harness) -> None:
    harness.hold("long", 600)
    harness.hold("short", 60)
    harness.after(120)
    assert harness.network.timeouts["renew"] == [10.0]


@pytest.mark.parametrize(("leases", "calls"), [(1, [1]), (256, [256]), (257, [256, 1]), (600, [256, 256, 88])])
def test_renewals_travel_in_batches_of_256(harness: Harness, leases: int, calls: list[int]) -> None:
    for number in range(leases):
        harness.hold(f"work {number}")
    harness.after(120)
    assert harness.network.sizes == calls
    assert len(harness.reported("renewed")) == leases


def test_a_lease_being_settled_is_renewed_until_the_store_has_answered(harness: Harness) -> None:
    """A settlement may be repeated for a whole lease; meanwhile no other worker may take over."""
    hold = harness.hold()
    hold.is_settling = True
    harness.after(120)
    assert harness.network.calls["renew"] == 1
    assert hold.ends == 120 + LEASE


def test_the_heartbeat_does_not_spin_on_a_lease_that_was_lost_while_it_is_being_settled(harness: Harness) -> None:
    hold = harness.hold()
    harness.clock.advance(LEASE)
    harness.taken_over(hold)
    hold.is_settling = True
    harness.heartbeat.tick()
    harness.heartbeat.tick()
    assert harness.network.calls["renew"] == 1


def test_what_was_dropped_is_not_renewed_any_more(harness: Harness) -> None:
    harness.heartbeat.drop(harness.hold())
    harness.after(120)
    assert harness.network.calls["renew"] == 0
    assert not harness.heartbeat.held()
