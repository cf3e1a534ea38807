"""A heartbeat without a thread: tests run it pass by pass, on a fake clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from onceward.engine.lease import Lease
from onceward.observe import Event
from onceward.observe.log import logging_bus
from onceward.protocol.policy import SECOND
from onceward.protocol.record import Record
from onceward.protocol.requests import ClaimRequest, Verdict
from onceward.runtime.threads import run
from onceward.stores import MemoryStore
from onceward.testing.clock import FakeClock
from tests.faulty import FaultyNetwork, FaultyStore
from tests.heartbeats import ThreadlessHeartbeat

LEASE = 600


class HeldLease:
    """A lease that belongs to no attempt."""

    heartbeat: int | None = None
    renew_at = 0.0
    ends = 0.0
    lost = False
    overdue = False
    inherited = False
    is_settling = False
    on_lost: Callable[[], None] | None = None

    def __init__(self, record: Record, lease: int) -> None:
        self.record = record
        self.nonce = record.nonce
        self.lease = lease


def lease_of(record: Record, seconds: float) -> HeldLease:
    return HeldLease(record, round(seconds * SECOND))


class Harness:
    """A heartbeat on a memory store behind a faulty network, all on one clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.memory = MemoryStore(clock=self.clock)
        self.network = FaultyNetwork()
        self.store = FaultyStore(self.memory, self.network)
        self.bus = logging_bus()
        self.events: list[Event] = []
        self.owned: list[HeldLease] = []  # their owners are alive
        self.bus.subscribe(self.events.append)
        self.heartbeat = ThreadlessHeartbeat(self.store, self.bus, monotonic=self.now)

    def now(self) -> float:
        return self.clock.elapsed / SECOND

    def record(self, name: str, lease: float = LEASE) -> Record:
        id = name.encode().rjust(32, b".")
        request = ClaimRequest(id, "app/op", name, f"nonce of {name}".encode(), round(lease * SECOND))
        answer = run(self.memory.claim([request], timeout=1))[0]
        assert answer.verdict is Verdict.ACQUIRED
        assert answer.record is not None
        return answer.record

    def hold(self, name: str = "work", lease: float = LEASE) -> HeldLease:
        hold = lease_of(self.record(name, lease), lease)
        self.owned.append(hold)
        self.heartbeat.take(hold, self.now())
        return hold

    def stored(self, hold: Lease) -> Record:
        record = run(self.memory.read([hold.record.id], timeout=1))[0].record
        assert record is not None
        return record

    def taken_over(self, hold: Lease) -> None:
        """Let another worker claim the key, whose lease has expired."""
        request = ClaimRequest(hold.record.id, "app/op", hold.record.key, b"another", hold.lease)
        assert run(self.memory.claim([request], timeout=1))[0].verdict is Verdict.ACQUIRED

    def after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.heartbeat.tick()

    def reported(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.heartbeat.close()
