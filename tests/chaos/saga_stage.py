"""A stage for sagas that die: four steps, a remote on which their effects can be counted, and points to be killed at.

The points are numbered as they are passed: before and after every call to the store, and before and after every effect,
of `do` and of `undo`. Who is killed at point n leaves the world as it was there.
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
from onceward.sagas.journal import Direction, Journal, Progress

NAMES = ("reserve", "charge", "ship", "mail")
KINDS = ("compensatable", "compensatable", "pivot", "retriable")
How = Literal["rerun", "verify", "park"]


class Trouble(Exception):
    """Says nothing about the effect."""


class Offline(Exception):
    """This attempt certainly had no effect."""


class Refused(Exception):
    """The remote's last word."""


class Killed(BaseException):
    """In one process: as dead as it gets."""


class Wrong(BaseException):
    """A promise is broken. No Exception: a saga would take it for a failure of the step that notices it."""


def require(condition: bool, what: str) -> None:
    if not condition:
        raise Wrong(what)


class Points:
    """Counts the points that are passed, and strikes at one of them."""

    def __init__(self, at: int | None, strike: Callable[[], None]) -> None:
        self.at = at
        self.passed = 0
        self.dead = False
        self._strike = strike

    def __call__(self) -> None:
        if self.dead:
            raise Killed
        self.passed += 1
        if self.passed == self.at:
            self.dead = True
            self._strike()


class Remote:
    """What the steps change: a folder with a file for each effect, which every process sees."""

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
        """Which call of this name it is."""
        (self._calls / f"{len(os.listdir(self._calls)):04} {name}").touch()  # noqa: PTH208 (twice as quick)
        return self.calls().count(name)

    def calls(self) -> list[str]:
        return [one[5:] for one in sorted(os.listdir(self._calls))]  # noqa: PTH208 (as above)

    def effects(self) -> list[str]:
        return sorted(one.partition(" ")[0] for one in os.listdir(self._effects))  # noqa: PTH208 (as above)


class Memory(Remote):
    """The same without a disk, for many runs in one process."""

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


class Scene(Struct, frozen=True):
    """How the steps behave, by their names; all others work at once.

    refused   raises Refused, whenever it is called
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


class Stage:
    """Makes the steps of a scene. `journal` reads what the store holds: what is written is checked when it counts."""

    def __init__(self, scene: Scene, remote: Remote, points: Points, journal: Callable[[], Journal | None]) -> None:
        self.scene = scene
        self.remote = remote
        self.points = points
        self.journal = journal

    def steps(self) -> tuple[Step, ...]:
        return tuple(self._step(name, kind) for name, kind in zip(NAMES, KINDS, strict=True))

    def _step(self, name: str, kind: Any) -> Step:
        how = self.scene.settled.get(name, "rerun")
        return Step(
            name,
            self.do,
            undo=self.undo if kind == "compensatable" else None,
            kind=kind,
            after_crash=verify(self.find) if how == "verify" else how,
            final=() if kind == "retriable" else Refused,
            not_applied=Offline,
            retry_delay=0,
            max_attempts=self.scene.attempts,
        )

    def do(self, step: StepContext) -> str:
        self._intent_is_written(step, Progress.BEGUN)
        call = self.remote.note_call(step.name)
        self.points()
        behaviour = self.scene.of(step.name)
        if behaviour == "refused":
            raise Refused(step.name)
        if behaviour == "offline" and call > 1:
            raise Offline(step.name)
        if behaviour == "vain" and call == 1:
            raise Trouble(step.name)
        # Where a crash means "park", nothing knows a repetition when it sees one.
        once_more = self.scene.settled.get(step.name) == "park"
        self.remote.put(step.name, uuid.uuid4().hex if once_more else step.key)
        self.points()
        if behaviour in ("lost", "offline") and call == 1:
            raise Trouble(step.name)
        return f"{step.name} of {step.input['order']}"

    def undo(self, step: StepContext) -> None:
        journal = self._intent_is_written(step, Progress.UNDOING)
        require(journal.direction is Direction.COMPENSATING, "the first undo comes before the direction")
        require(step.name in self.remote.calls(), "a step is undone that was never begun")
        call = self.remote.note_call(f"undo {step.name}")
        self.points()
        if self.scene.of(step.name) == "stubborn" and call < 3:
            raise Trouble(step.name)
        require(step.result == f"{step.name} of {step.input['order']}", "undo got another result")
        self.remote.take_back(step.name, step.key)
        self.points()

    def find(self, step: StepContext) -> object:
        self.points()
        return applied(f"{step.name} of {step.input['order']}") if self.remote.has(step.name, step.key) else not_applied

    def _intent_is_written(self, step: StepContext, progress: Progress) -> Journal:
        journal = self.journal()
        line = None if journal is None else journal.entry(step.name)
        if journal is None or line is None or (line.progress, line.token) != (progress, step.token):
            raise Wrong(f"{step.name}: no intent in the store")
        if progress is Progress.BEGUN and journal.direction is Direction.FORWARD:
            earlier = journal.entries[: journal.entries.index(line)]
            written = all(one.progress is Progress.DONE for one in earlier)
            require(written, "a result was not written before the next intent")
        return journal


def fault_of(state: str, remote: Remote, *, may_park: bool = False) -> str | None:
    """What is wrong with the end of a saga; None if nothing is."""
    effects = remote.effects()
    if state == "COMPLETED":
        return None if effects == sorted(NAMES) else f"all done, but the effects are {effects}"
    if state == "FAILED":
        return None if effects == [] else f"all undone, but the effects are {effects}"
    if state == "PARKED" and may_park:
        return None
    return f"it ended {state}, with the effects {effects}"


def order_of_undoing(calls: list[str]) -> Iterator[str]:
    """The steps in the order in which they were first undone."""
    seen: set[str] = set()
    for call in calls:
        name = call.removeprefix("undo ")
        if call.startswith("undo ") and name not in seen:
            seen.add(name)
            yield name
