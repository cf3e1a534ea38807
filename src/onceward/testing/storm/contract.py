"""What a system brings to a storm, and what it gets. `System` first; the rest is what its methods speak about."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from msgspec import Struct

from onceward.protocol.outcome import Failed, Outcome

Said = Literal["executed", "replayed", "stale", "parked", "rejected", "running", "failed"]

ACKNOWLEDGED: tuple[Said, ...] = ("executed", "replayed", "stale", "parked", "rejected")
"""What is said of a delivery that has been dealt with. Everything else comes back."""


_SAID: dict[str, Said] = {
    "executed": "executed",
    "replayed": "replayed",
    "stale": "stale",
    "parked": "parked",
    "mismatch": "rejected",
    "running": "running",
    "unknown": "failed",  # the record will tell, at the next delivery
}


class Event(Struct, frozen=True):
    """What the outside world meant, once. The `id` names its effect in the audit; the `body` is JSON."""

    id: str
    body: Any = None


class Answer(Struct, frozen=True):
    """What a worker says about one delivery. An `attempt` above 1: somebody tried before, and died or failed."""

    said: Said
    attempt: int = 0
    why: str = ""

    @classmethod
    def of(cls, outcome: Outcome[Any]) -> Answer:
        """What an outcome of Onceward's means for the delivery, as it does for a consumer of a queue."""
        if isinstance(outcome, Failed):
            return cls("rejected" if outcome.final else "failed", why=f"{outcome.error_type}: {outcome.error}")
        return cls(_SAID[outcome.kind], outcome.attempt if outcome.executed else 0)


class Setting(Struct, frozen=True):
    """Where a run takes place. It goes to the worker processes as JSON."""

    folder: str
    """Of this run alone; temporary."""
    run: str
    """A word of this run alone, for names on a server: runs with one seed have the same keys and must not meet."""
    store: str = ""
    """A URL; "" is the system's own embedded default, inside `folder`."""
    lease: float = 1.5
    """Seconds. Each worker has another one, between one and two."""
    guarded: bool = True
    """False: the same work as it is often written by hand."""
    services: dict[str, str] = {}
    """What `open` started: names and addresses."""


class Effect(Struct, frozen=True):
    """A kind of effect that the system has, and its row in the table of promises."""

    name: str
    promise: str


class Audit(Struct, frozen=True):
    """What was really done, counted by plain means. Nothing of Onceward is asked.

    `duplicates` and `lost` are ids of events; `wrong` has sentences; `counted` is what cannot be exactly once.
    """

    expected: int
    effects: int
    duplicates: Sequence[str] = ()
    lost: Sequence[str] = ()
    wrong: Sequence[str] = ()
    counted: dict[str, int] = {}

    @classmethod
    def of(
        cls,
        events: Iterable[Event],
        found: Iterable[str],
        *,
        what: str = "",
        wrong: Sequence[str] = (),
        counted: dict[str, int] | None = None,
    ) -> Audit:
        """Each of these events should have had one effect; `found` has the event's id for every effect there is.

        Audits of several kinds of effects are added up; then `what` each of them is goes in front of the ids.
        """
        expected = [event.id for event in events]
        effects = Counter(found)
        kind = f"{what} of " if what else ""
        strays = sorted(effects.keys() - set(expected))
        return cls(
            expected=len(expected),
            effects=effects.total(),
            duplicates=[kind + name for name in expected if effects[name] > 1],
            lost=[kind + name for name in expected if not effects[name]],
            wrong=[*wrong, *(f"{kind}{name}: nobody meant this" for name in strays)],
            counted=counted or {},
        )

    def __add__(self, other: Audit) -> Audit:
        return Audit(
            expected=self.expected + other.expected,
            effects=self.effects + other.effects,
            duplicates=[*self.duplicates, *other.duplicates],
            lost=[*self.lost, *other.lost],
            wrong=[*self.wrong, *other.wrong],
            counted={**self.counted, **other.counted},
        )

    @property
    def passed(self) -> bool:
        """Nothing twice, nothing missing, nothing wrong."""
        return not (self.duplicates or self.lost or self.wrong)


class System(Protocol):
    """Something that handles events: an object in a module that worker processes can import."""

    @property
    def name(self) -> str:
        """One word, for the scoreboard."""
        ...

    @property
    def effects(self) -> Sequence[Effect]:
        """Every kind of effect that the work has, with what is promised for it."""
        ...

    def open(self, setting: Setting) -> AbstractContextManager[dict[str, str]]:
        """In the supervisor, around the whole run: tables, stand-in servers. Gives the `services`."""
        ...

    def events(self, dice: random.Random) -> Iterator[Event]:
        """What happens in the world, without end, all of it from these dice. The storm repeats and reorders it."""
        ...

    def worker(self, setting: Setting) -> Callable[[Event], Answer]:
        """Once in each worker process. What the handler raises is an answer, too: failed."""
        ...

    def audit(self, setting: Setting, events: Sequence[Event]) -> Audit:
        """In the supervisor, after the last acknowledgement: what these events did."""
        ...
