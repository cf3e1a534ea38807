"""Simulates crashes of sagas and their takeover in one process: at every point, and at every pair of points."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from typing import Any

from msgspec.structs import replace

from onceward import Once
from onceward.protocol.requests import Answer, AnySettlement, ClaimRequest, Renewal
from onceward.runtime.threads import run
from onceward.sagas.journal import Journal, journal_from
from onceward.stores import MemoryStore
from onceward.testing.clock import FakeClock
from tests.chaos.saga_steps import NAMES, Killed, Memory, Points, Scenario, ScenarioSteps, fault_of, order_of_undoing

MANY = 200
"""More attempts than any saga needs."""

DONE = Scenario()
REFUSED = Scenario({"ship": "refused"})
EARLY = Scenario({"charge": "refused", "reserve": "stubborn"})
LOST = Scenario({"charge": "lost", "ship": "lost", "mail": "vain"})
LOST_AND_REFUSED = Scenario({"reserve": "lost", "charge": "vain", "ship": "refused"})
SCENARIOS = {
    "done": DONE,
    "refused": REFUSED,
    "early": EARLY,
    "lost": LOST,
    "lost and refused": LOST_AND_REFUSED,
}


def verified(scenario: Scenario) -> Scenario:
    """Return the scenario with steps that are verified instead of repeated."""
    return replace(scenario, settled=dict.fromkeys(NAMES, "verify"))


class PointedStore(MemoryStore):
    """Every call has two points: before it arrives, and after it, before the answer arrives."""

    def __init__(self, simulation: SagaSimulation) -> None:
        super().__init__(clock=simulation.clock)
        self._simulation = simulation

    async def claim(self, requests: Sequence[ClaimRequest], *, timeout: float) -> list[Answer]:
        return await self._between_points(super().claim(requests, timeout=timeout))

    async def renew(self, renewals: Sequence[Renewal], *, timeout: float) -> list[Answer]:
        return await self._between_points(super().renew(renewals, timeout=timeout))

    async def settle(self, settlements: Sequence[AnySettlement], **how: Any) -> list[Answer]:
        return await self._between_points(super().settle(settlements, **how))

    async def _between_points(self, call: Coroutine[Any, Any, list[Answer]]) -> list[Answer]:
        with closing(call):
            self._simulation.pass_point()
            answers = await call
        self._simulation.pass_point()
        return answers


class SagaSimulation:
    """One client for all simulated sagas: each has its own key."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self._points: Points | None = None
        self.once = Once(PointedStore(self), lease="10m")
        self._key: Any = None

    def pass_point(self) -> None:
        if self._points is not None:
            self._points()

    def journal(self) -> Journal | None:
        record = run(self.once.store.read([self._key.id], timeout=1))[0].record
        return None if record is None else journal_from(record.note)

    def run_killed_at(
        self, scenario: Scenario, kills: tuple[int, ...], *, may_park: bool = False
    ) -> tuple[str, list[int]]:
        """Run a saga that is killed at these points, one in each attempt.

        Return its final state, and the number of points that each attempt has passed.
        """
        remote, passed = Memory(), []
        for at in [*kills, *[None] * MANY]:
            points = Points(at, kill)
            self._points = points
            steps_of_scenario = ScenarioSteps(scenario, remote, points, self.journal)
            self.once.sagas.clear()
            self.once.recoverable.clear()
            saga = self.once.saga("order", *steps_of_scenario.steps(), key="order:{order}")
            self._key = saga.key(order=7)
            try:
                saga.outcome(order=7)
            except Killed:
                self.clock.advance("11m")
                continue
            finally:
                passed.append(points.passed)
                self._points = None
            break
        entry = saga.read(order=7)
        assert entry is not None
        state = entry.state.value
        fault = fault_of(state, remote, may_park=may_park)
        undone = list(order_of_undoing(remote.calls()))
        if fault is None and undone != sorted(undone, key=["charge", "reserve"].index):
            fault = f"undone in the order {undone}"
        self.once.forget(self._key, force=True)
        if fault is not None:
            raise AssertionError(f"killed at {kills}: {fault}; calls: {remote.calls()}")
        return state, passed

    def kill_everywhere(self, scenario: Scenario, *, twice: bool = False, may_park: bool = False) -> dict[str, int]:
        """Count the final states when killed at each point (and then at each point of the next attempt)."""
        ends: dict[str, int] = {}
        for first in count(1):
            state, passed = self.run_killed_at(scenario, (first,), may_park=may_park)
            ends[state] = ends.get(state, 0) + 1
            if passed[0] < first:  # it was not killed: all points are done
                break
            for second in count(1) if twice else ():
                state, passed = self.run_killed_at(scenario, (first, second), may_park=may_park)
                ends[state] = ends.get(state, 0) + 1
                if passed[1] < second:
                    break
        return ends

    def close(self) -> None:
        self._points = None
        self.once.close(timeout=0)


def kill() -> None:
    raise Killed


@contextmanager
def saga_simulation_client() -> Iterator[SagaSimulation]:
    one = SagaSimulation()
    try:
        yield one
    finally:
        one.close()
