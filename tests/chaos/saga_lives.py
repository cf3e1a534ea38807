"""Sagas in one process that die as often as wanted, and are taken over: every point, and every pair of points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from msgspec.structs import replace

from onceward import Once
from onceward.protocol.requests import AnyRequest
from onceward.runtime.bridge import run
from onceward.sagas.journal import Journal, journal_from
from onceward.stores import MemoryStore
from onceward.testing.clock import FakeClock
from tests.chaos.saga_stage import NAMES, Killed, Memory, Points, Scene, Stage, fault_of, order_of_undoing

MANY = 200
"""More lives than any saga needs."""

DONE = Scene()
REFUSED = Scene({"ship": "refused"})
EARLY = Scene({"charge": "refused", "reserve": "stubborn"})
LOST = Scene({"charge": "lost", "ship": "lost", "mail": "vain"})
LOST_AND_REFUSED = Scene({"reserve": "lost", "charge": "vain", "ship": "refused"})
SCENES = {
    "done": DONE,
    "refused": REFUSED,
    "early": EARLY,
    "lost": LOST,
    "lost and refused": LOST_AND_REFUSED,
}


def verified(scene: Scene) -> Scene:
    """With steps that are looked up instead of being repeated."""
    return replace(scene, settled=dict.fromkeys(NAMES, "verify"))


class Theatre:
    """One client for all stories: each has a key of its own."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.once = Once(MemoryStore(clock=self.clock), lease="10m")
        engine: Any = self.once.engine
        self._sound = engine.answer
        engine.answer = self._answer
        self._points: Points | None = None
        self._key: Any = None

    def _answer(self, request: AnyRequest) -> Any:
        """Every call to the store is two points: not yet there, and there, but nobody heard the answer."""
        if self._points is None:
            return self._sound(request)
        self._points()
        answer = self._sound(request)
        self._points()
        return answer

    def journal(self) -> Journal | None:
        record = run(self.once.store.read([self._key.id], timeout=1))[0].record
        return None if record is None else journal_from(record.note)

    def play(self, scene: Scene, kills: tuple[int, ...], *, may_park: bool = False) -> tuple[str, list[int]]:
        """The end of the saga that is killed at these points, one in each life; and how many each life has passed."""
        remote, passed = Memory(), []
        for at in [*kills, *[None] * MANY]:
            points = Points(at, strike)
            self._points = points
            stage = Stage(scene, remote, points, self.journal)
            self.once.sagas.clear()
            self.once.recoverable.clear()
            saga = self.once.saga("order", *stage.steps(), key="order:{order}")
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

    def everywhere(self, scene: Scene, *, twice: bool = False, may_park: bool = False) -> dict[str, int]:
        """How often it ended in which state, killed at each point (and then at each point of the next life)."""
        ends: dict[str, int] = {}
        for first in count(1):
            state, passed = self.play(scene, (first,), may_park=may_park)
            ends[state] = ends.get(state, 0) + 1
            if passed[0] < first:  # it was not killed any more: that were all points
                break
            for second in count(1) if twice else ():
                state, passed = self.play(scene, (first, second), may_park=may_park)
                ends[state] = ends.get(state, 0) + 1
                if passed[1] < second:
                    break
        return ends

    def close(self) -> None:
        self._points = None
        self.once.close(timeout=0)


def strike() -> None:
    raise Killed


@contextmanager
def theatre() -> Iterator[Theatre]:
    one = Theatre()
    try:
        yield one
    finally:
        one.close()
