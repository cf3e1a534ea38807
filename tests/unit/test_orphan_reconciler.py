"""Claims whose answer never arrived are looked for, and released if they were granted after all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onceward.protocol.policy import SECOND
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Answer, ClaimRequest, Complete, Verdict
from onceward.runtime import orphans
from onceward.runtime.heartbeat import Heartbeat
from onceward.runtime.threads import run
from tests.unit.heartbeat_harness import LEASE, Harness, harness, lease_of

__all__ = ["harness"]  # fixtures, imported here so that pytest finds them

GONE = b"gone".rjust(32, b".")


def state_of(harness: Harness, id: bytes) -> RecordState | None:
    record = run(harness.memory.read([id], timeout=1))[0].record
    return None if record is None else record.state


def orphaned(harness: Harness, name: str = "work") -> Record:
    """Grant a claim whose caller never got the answer, and let the heartbeat reconcile it."""
    record = harness.record(name)
    harness.heartbeat.reconcile(lease_of(record, LEASE), record.id, LEASE * SECOND)
    return record


@pytest.mark.rival(7)
@pytest.mark.fault("F53")
def test_a_claim_that_was_granted_is_released_and_reported(harness: Harness) -> None:
    record = orphaned(harness)
    harness.after(orphans.FIRST_PAUSE)
    assert state_of(harness, record.id) is RecordState.FREE
    assert [(one.key, one.reason) for one in harness.reported("released")] == [("work", "its answer came too late")]
    reads = harness.network.calls["read"]
    harness.after(LEASE)
    assert harness.network.calls["read"] == reads, "it is not looked for any more"


@pytest.mark.fault("F53")
def test_a_claim_that_comes_late_is_waited_for(harness: Harness) -> None:
    """A frozen store applies the claim when it resumes, perhaps after it has answered our read."""
    lease = lease_of(Record(GONE, "app/op", "gone", RecordState.PENDING, 1, nonce=b"nonce of gone"), LEASE)
    harness.heartbeat.reconcile(lease, GONE, LEASE * SECOND)
    for _ in range(3):
        harness.after(1)
    request = ClaimRequest(GONE, "app/op", "gone", b"nonce of gone", LEASE * SECOND)
    run(harness.memory.claim([request], timeout=1))
    for _ in range(3):
        harness.after(orphans.MAX_PAUSE)
    assert state_of(harness, GONE) is RecordState.FREE


def test_a_claim_that_was_never_granted_is_not_looked_for_forever(harness: Harness) -> None:
    lease = lease_of(Record(GONE, "app/op", "gone", RecordState.PENDING, 1, nonce=b"nonce of gone"), LEASE)
    harness.heartbeat.reconcile(lease, GONE, LEASE * SECOND)
    for _ in range(100):
        harness.after(1)
    checks = harness.network.calls["read"]
    assert 5 < checks < 20
    harness.after(LEASE)
    assert harness.network.calls["read"] == checks


@pytest.mark.fault("F41")
def test_a_key_of_another_worker_or_a_completed_key_is_left_alone(harness: Harness) -> None:
    done, taken = orphaned(harness, "done"), orphaned(harness, "taken")
    run(harness.memory.settle([Complete(done.id, done.token, done.nonce)], timeout=1))
    harness.clock.advance(LEASE)
    harness.taken_over(lease_of(taken, LEASE))
    harness.after(1)
    assert state_of(harness, done.id) is RecordState.COMPLETED
    assert state_of(harness, taken.id) is RecordState.PENDING
    assert harness.reported("released") == []


@pytest.mark.fault("F50")
def test_a_store_that_is_down_is_asked_again_more_and_more_seldom(harness: Harness) -> None:
    record = orphaned(harness)
    harness.network.lose_requests("read")
    for _ in range(60):
        harness.after(1)
    assert 8 < harness.network.calls["read"] < 25
    assert state_of(harness, record.id) is RecordState.PENDING
    harness.network.heal()
    harness.after(orphans.MAX_PAUSE)
    assert state_of(harness, record.id) is RecordState.FREE


def test_many_claims_are_looked_for_in_one_call_and_their_number_is_limited(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long outage of the store leaves many of them."""
    for number in range(100):
        orphaned(harness, f"work {number}")
    harness.after(orphans.FIRST_PAUSE)
    assert (harness.network.calls["read"], harness.network.calls["settle"]) == (1, 1)
    assert len(harness.reported("released")) == 100
    for number in range(orphans.MAX_ORPHANS + 10):
        name = f"{number:032}".encode()
        lease = lease_of(Record(name, "app/op", "gone", RecordState.PENDING, 1, nonce=name), LEASE)
        harness.heartbeat.reconcile(lease, name, LEASE * SECOND)
    looked_for: set[bytes] = set()
    read = harness.memory.read

    async def collected(ids: Sequence[bytes], *, timeout: float) -> list[Answer]:
        looked_for.update(ids)
        return await read(ids, timeout=timeout)

    monkeypatch.setattr(harness.memory, "read", collected)
    harness.after(orphans.FIRST_PAUSE)
    for _ in range(orphans.MAX_ORPHANS // orphans.BATCH):  # one batch a pass
        harness.after(0)
    assert len(looked_for) == orphans.MAX_ORPHANS


def test_a_closed_heartbeat_looks_for_nothing_and_raises_nothing(harness: Harness) -> None:
    """The caller that releases the key raises its own exception, which nothing may hide."""
    record = harness.record("work")
    heartbeat = Heartbeat(harness.store, harness.bus, monotonic=harness.now)
    heartbeat.close()
    heartbeat.reconcile(lease_of(record, LEASE), record.id, LEASE * SECOND)
    assert state_of(harness, record.id) is RecordState.PENDING


def test_a_claim_forgotten_meanwhile_is_not_reported(harness: Harness) -> None:
    record = orphaned(harness)
    run(harness.memory.forget([record.id], force=True, timeout=1))
    harness.after(1)
    assert harness.reported("released") == []
    assert run(harness.memory.read([record.id], timeout=1))[0].verdict is Verdict.OK
