"""Claims whose answer never came are looked for, and given back if they were granted after all."""

from __future__ import annotations

import pytest

from onceward.protocol.policy import SECOND
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import ClaimRequest, Complete, Verdict
from onceward.runtime import orphans as seeker
from onceward.runtime.bridge import run
from onceward.runtime.heartbeat import Heartbeat
from tests.unit.heartbeat_bench import LEASE, Bench, bench, lease_of

__all__ = ["bench"]  # fixtures, told here so that pytest finds them

GONE = b"gone".rjust(32, b".")


def state_of(bench: Bench, id: bytes) -> RecordState | None:
    record = run(bench.memory.read([id], timeout=1))[0].record
    return None if record is None else record.state


def sought(bench: Bench, name: str = "work") -> Record:
    """Granted, but its caller has never heard of it."""
    record = bench.record(name)
    bench.heartbeat.reconcile(lease_of(record, LEASE), record.id, LEASE * SECOND)
    return record


@pytest.mark.rival(7)
@pytest.mark.fault("F53")
def test_a_claim_that_was_granted_is_given_back_and_told(bench: Bench) -> None:
    record = sought(bench)
    bench.after(seeker.FIRST_PAUSE)
    assert state_of(bench, record.id) is RecordState.FREE
    assert [(one.key, one.reason) for one in bench.told("released")] == [("work", "its answer came too late")]
    reads = bench.network.calls["read"]
    bench.after(LEASE)
    assert bench.network.calls["read"] == reads, "it is not looked for any more"


@pytest.mark.fault("F53")
def test_a_claim_that_comes_late_is_waited_for(bench: Bench) -> None:
    """A frozen store does what it was told when it goes on, perhaps after it has answered our question."""
    lease = lease_of(Record(GONE, "app/op", "gone", RecordState.PENDING, 1, nonce=b"nonce of gone"), LEASE)
    bench.heartbeat.reconcile(lease, GONE, LEASE * SECOND)
    for _ in range(3):
        bench.after(1)
    request = ClaimRequest(GONE, "app/op", "gone", b"nonce of gone", LEASE * SECOND)
    run(bench.memory.claim([request], timeout=1))
    for _ in range(3):
        bench.after(seeker.MAX_PAUSE)
    assert state_of(bench, GONE) is RecordState.FREE


def test_one_that_never_came_is_not_looked_for_for_ever(bench: Bench) -> None:
    lease = lease_of(Record(GONE, "app/op", "gone", RecordState.PENDING, 1, nonce=b"nonce of gone"), LEASE)
    bench.heartbeat.reconcile(lease, GONE, LEASE * SECOND)
    for _ in range(100):
        bench.after(1)
    assert 5 < bench.network.calls["read"] < 20
    assert bench.heartbeat._reconciler.next_check() == float("inf")


@pytest.mark.fault("F41")
def test_what_somebody_else_has_or_what_is_done_is_left_alone(bench: Bench) -> None:
    done, taken = sought(bench, "done"), sought(bench, "taken")
    run(bench.memory.settle([Complete(done.id, done.token, done.nonce)], timeout=1))
    bench.clock.advance(LEASE)
    bench.taken_over(lease_of(taken, LEASE))
    bench.after(1)
    assert state_of(bench, done.id) is RecordState.COMPLETED
    assert state_of(bench, taken.id) is RecordState.PENDING
    assert bench.told("released") == []


@pytest.mark.fault("F50")
def test_a_store_that_is_down_is_asked_again_more_and_more_seldom(bench: Bench) -> None:
    record = sought(bench)
    bench.network.lose_requests("read")
    for _ in range(60):
        bench.after(1)
    assert 8 < bench.network.calls["read"] < 25
    assert state_of(bench, record.id) is RecordState.PENDING
    bench.network.heal()
    bench.after(seeker.MAX_PAUSE)
    assert state_of(bench, record.id) is RecordState.FREE


def test_many_are_looked_for_in_one_call_and_not_without_end(bench: Bench) -> None:
    """A store that is down for long makes many of them."""
    for number in range(100):
        sought(bench, f"work {number}")
    bench.after(seeker.FIRST_PAUSE)
    assert (bench.network.calls["read"], bench.network.calls["settle"]) == (1, 1)
    assert len(bench.told("released")) == 100
    for number in range(seeker.MAX_ORPHANS + 10):
        name = f"{number:032}".encode()
        lease = lease_of(Record(name, "app/op", "gone", RecordState.PENDING, 1, nonce=name), LEASE)
        bench.heartbeat.reconcile(lease, name, LEASE * SECOND)
    assert len(bench.heartbeat._reconciler._orphans) == seeker.MAX_ORPHANS


def test_a_keeper_that_is_closed_looks_for_nothing_and_raises_nothing(bench: Bench) -> None:
    """Whoever gives a key back is leaving for a reason of its own, which nothing may hide."""
    record = bench.record("work")
    heartbeat = Heartbeat(bench.store, bench.bus, monotonic=bench.now)
    heartbeat.close()
    heartbeat.reconcile(lease_of(record, LEASE), record.id, LEASE * SECOND)
    assert state_of(bench, record.id) is RecordState.PENDING


def test_what_was_forgotten_meanwhile_is_not_told(bench: Bench) -> None:
    record = sought(bench)
    run(bench.memory.forget([record.id], force=True, timeout=1))
    bench.after(1)
    assert bench.told("released") == []
    assert run(bench.memory.read([record.id], timeout=1))[0].verdict is Verdict.OK
