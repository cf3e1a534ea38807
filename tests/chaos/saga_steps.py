"""Steps of sagas that crash: four steps, a remote that counts their effects, and points at which to kill them.

The points are numbered in the order in which they are passed: before and after every call to the store, and before and
after every effect of `do` and `undo`. A process killed at point n changes nothing after it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from onceward import applied, not_applied, verify
from onceward.sagas import Step, StepContext
from onceward.sagas.journal import Direction, Journal, StepProgress

NAMES = ("reserve", "charge", "ship", "mail")
KINDS = ("compensatable", "compensatable", "pivot", "retriable")
How = Literal["rerun", "verify", "park"]


class Trouble(Exception):
    """The outcome of the effect is unknown."""


class Offline(Exception):
    """This attempt certainly had no effect."""


class Refused(Exception):
    """The remote has refused finally."""


class Killed(BaseException):
    """Simulates SIGKILL within one process."""


class Wrong(BaseException):
    """A promise is broken. Not an Exception: a saga would treat it as a failure of the step."""


def require(condition: bool, what: str) -> None:
    if not condition:
        raise Wrong(what)


class Points:
    """Counts the points that are passed, and kills at one of them."""

    def __init__(self, at: int | None, kill: Callable[[], None]) -> None:
        self.at = at
        self.passed = 0
        self.dead = False
        self._kill = kill

    def __call__(self) -> None:
        if self.dead:
            raise Killed
        self.passed += 1
        if self.passed == self.at:
            self.dead = True
            self._kill()


class Remote:
    """The remote system: a folder with a file for each effect, visible to every process."""

    def __init__(self, folder: Path) -> None:
        self._effects = folder / "effects"
        self._calls = folder / "calls"
        for one in (self._effects, self._calls):
            one.mkdir(exist_ok=True)

    def put(self, name: str, key: str) -> None:
        (self._effects / f"{name} {key}").touch()

    def take_back(self, name: str, key: str) -> None:
        (self._effects / f"{name} {key}").unlink(missing_ok=True)

    def has(self, name: str, key: str) -> bool:
        return (self._effects / f"{name} {key}").exists()

    def note_call(self, name: str) -> int:
        """Record the call, and return its number among the calls of this name."""
        (self._calls / f"{len(os.listdir(self._calls)):04} {name}").touch()  # noqa: PTH208 (twice as quick)
        return self.calls().count(name)

    def calls(self) -> list[str]:
        return [one[5:] for one in sorted(os.listdir(self._calls))]  # noqa: PTH208 (as above)

    def effects(self) -> list[str]:
        return sorted(one.partition(" ")[0] for one in os.listdir(self._effects))  # noqa: PTH208 (as above)


class Memory(Remote):
    """The same in memory, for many runs in one process."""

    def __init__(self) -> None:
        self._put: dict[tuple[str, str], None] = {}
        self._called: list[str] = []

    def put(self, name: str, key: str) -> None:
        self._put[name, key] = None

    def take_back(self, name: str, key: str) -> None:
        self._put.pop((name, key), None)

    def has(self, name: str, key: str) -> bool:
        return (name, key) in self._put

    def note_call(self, name: str) -> int:
        self._called.append(name)
        return self._called.count(name)

    def calls(self) -> list[str]:
        return list(self._called)

    def effects(self) -> list[str]:
        return sorted(name for name, _ in self._put)


class Scenario(Struct, frozen=True):
    """How the steps behave, by name; all others succeed immediately.

    refused   always raises Refused
    lost      the first call takes effect, and raises Trouble
    vain      the first call raises Trouble, without an effect
    offline   the first call takes effect and raises Trouble, all others raise Offline
    stubborn  its undo raises Trouble the first two times
    """

    behaviours: dict[str, str] = {}
    settled: dict[str, How] = {}
    attempts: int | None = None

    def of(self, name: str) -> str:
        return self.behaviours.get(name, "")


class ScenarioSteps:
    """Creates the steps of a scenario. `journal` reads the stored journal, which the steps check."""

    def __init__(
        self, scenario: Scenario, remote: Remote, points: Points, journal: Callable[[], Journal | None]
    ) -> None:
        self.scenario = scenario
        self.remote = remote
        self.points = points
        self.journal = journal

    def steps(self) -> tuple[Step, ...]:
        return tuple(self._step(name, kind) for name, kind in zip(NAMES, KINDS, strict=True))

    def _step(self, name: str, kind: Any) -> Step:
        how = self.scenario.settled.get(name, "rerun")
        return Step(
            name,
            self.do,
            undo=self.undo if kind == "compensatable" else None,
            kind=kind,
            after_crash=verify(self.find) if how == "verify" else how,
            final=() if kind == "retriable" else Refused,
            not_applied=Offline,
            retry_delay=0,
            max_attempts=self.scenario.attempts,
        )

    def do(self, step: StepContext) -> str:
        self._intent_is_written(step, StepProgress.BEGUN)
        call = self.remote.note_call(step.name)
        self.points()
        behaviour = self.scenario.of(step.name)
        if behaviour == "refused":
            raise Refused(step.name)
        if behaviour == "offline" and call > 1:
            raise Offline(step.name)
        if behaviour == "vain" and call == 1:
            raise Trouble(step.name)
        # Under "park", the remote cannot recognise a repetition.
        once_more = self.scenario.settled.get(step.name) == "park"
        self.remote.put(step.name, uuid.uuid4().hex if once_more else step.key)
        self.points()
        if behaviour in ("lost", "offline") and call == 1:
            raise Trouble(step.name)
        return f"{step.name} of {step.input['order']}"

    def undo(self, step: StepContext) -> None:
        journal = self._intent_is_written(step, StepProgress.UNDOING)
        require(journal.direction is Direction.COMPENSATING, "the first undo comes before the direction")
        require(step.name in self.remote.calls(), "a step is undone that was never begun")
        call = self.remote.note_call(f"undo {step.name}")
        self.points()
        if self.scenario.of(step.name) == "stubborn" and call < 3:
            raise Trouble(step.name)
        require(step.result == f"{step.name} of {step.input['order']}", "undo got another result")
        self.remote.take_back(step.name, step.key)
        self.points()

    def find(self, step: StepContext) -> object:
        self.points()
        return applied(f"{step.name} of {step.input['order']}") if self.remote.has(step.name, step.key) else not_applied

    def _intent_is_written(self, step: StepContext, progress: StepProgress) -> Journal:
        journal = self.journal()
        line = None if journal is None else journal.entry(step.name)
        if journal is None or line is None or (line.progress, line.token) != (progress, step.token):
            raise Wrong(f"{step.name}: no intent in the store")
        if progress is StepProgress.BEGUN and journal.direction is Direction.FORWARD:
            earlier = journal.entries[: journal.entries.index(line)]
            written = all(one.progress is StepProgress.DONE for one in earlier)
            require(written, "a result was not written before the next intent")
        return journal


def fault_of(state: str, remote: Remote, *, may_park: bool = False) -> str | None:
    """Return what is wrong with the final state of a saga, or None."""
    effects = remote.effects()
    if state == "COMPLETED":
        return None if effects == sorted(NAMES) else f"all done, but the effects are {effects}"
    if state == "FAILED":
        return None if effects == [] else f"all undone, but the effects are {effects}"
    if state == "PARKED" and may_park:
        return None
    return f"it ended {state}, with the effects {effects}"


def order_of_undoing(calls: list[str]) -> Iterator[str]:
    """Yield the steps in the order in which they were first undone."""
    seen: set[str] = set()
    for call in calls:
        name = call.removeprefix("undo ")
        if call.startswith("undo ") and name not in seen:
            seen.add(name)
            yield name
