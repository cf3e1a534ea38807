"""The interface between a storm and the system under test. Read `System` first; its methods use the other types."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, cast

from msgspec import Struct

from onceward.protocol.outcome import Failed, Outcome

ResultKind = Literal["executed", "replayed", "stale", "parked", "rejected", "running", "failed"]

ACKNOWLEDGED: tuple[ResultKind, ...] = ("executed", "replayed", "stale", "parked", "rejected")
"""Results that acknowledge a delivery. After any other result it is delivered again."""


class Trouble(Exception):
    """The run cannot be finished, so it proves nothing about the promises."""


class StormEvent(Struct, frozen=True):
    """Something that should take effect once. The audit identifies the effect by `id`; the `body` is JSON."""

    id: str
    body: Any = None


class HandlerResult(Struct, frozen=True):
    """The result of one delivery. If `attempt` is above 1, an earlier attempt failed or its worker died."""

    kind: ResultKind
    """How the delivery ended. `running` and `failed` cause a redelivery, all others acknowledge it."""
    attempt: int = 0
    why: str = ""
    """The reason of a failure or rejection. Empty otherwise."""

    @classmethod
    def of(cls, outcome: Outcome[Any]) -> HandlerResult:
        """Return the result for an `outcome` of Onceward, by the same rule as a queue consumer."""
        if isinstance(outcome, Failed):
            return cls("rejected" if outcome.final else "failed", why=f"{outcome.error_type}: {outcome.error}")
        other_names = {"mismatch": "rejected", "unknown": "failed"}  # the next delivery finds out from the record
        kind = cast("ResultKind", other_names.get(outcome.kind, outcome.kind))
        return cls(kind, outcome.attempt if outcome.executed else 0)


class StormSetting(Struct, frozen=True):
    """The environment of a run. It is passed to the worker processes as JSON."""

    folder: str
    """The folder of this run; temporary by default."""
    run: str
    """A random id for names on a server: runs with the same seed have the same keys, and must not share data."""
    store: str = ""
    """The URL of a store. If empty, the system uses its embedded default in `folder`."""
    lease: float = 1.5
    """Seconds. Each worker gets a different lease between one and two seconds."""
    guarded: bool = True
    """If False, the handler must do the same work without Onceward, as it is often written by hand."""
    services: dict[str, str] = {}
    """Names and addresses of the services that `open` started."""


class Effect(Struct, frozen=True):
    """A kind of effect of the system, and what is promised for it."""

    name: str
    """What the audit counts, such as `charge`."""
    promise: str
    """What is guaranteed for it, in words: the report shows it next to the name."""


class Audit(Struct, frozen=True):
    """The effects that really happened, counted without Onceward.

    `duplicates` and `lost` are ids of events; `wrong` contains sentences; `counted` has effects that cannot be exactly
    once.
    """

    expected: int
    """How many effects there should be: one per event, for each kind of effect."""
    effects: int
    """How many there are."""
    duplicates: Sequence[str] = ()
    lost: Sequence[str] = ()
    wrong: Sequence[str] = ()
    counted: dict[str, int] = {}

    @classmethod
    def of(
        cls,
        events: Iterable[StormEvent],
        found: Iterable[str],
        *,
        what: str = "",
        wrong: Sequence[str] = (),
        counted: dict[str, int] | None = None,
    ) -> Audit:
        """Return the audit of `events` that should have one effect each.

        Args:
            events: The events that were delivered.
            found: The id of the event for every effect that exists.
            what: The kind of effect. It precedes the ids. To audit several kinds, add up their audits.
            wrong: Sentences about anything else that is wrong.
            counted: Effects that cannot be exactly once, such as calls of an API, by their names.
        """
        expected = [event.id for event in events]
        effects = Counter(found)
        kind = f"{what} of " if what else ""
        unexpected = sorted(effects.keys() - set(expected))
        return cls(
            expected=len(expected),
            effects=effects.total(),
            duplicates=[kind + name for name in expected if effects[name] > 1],
            lost=[kind + name for name in expected if not effects[name]],
            wrong=[*wrong, *(f"{kind}{name}: no event caused this effect" for name in unexpected)],
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
        """True if there are no duplicate, lost or wrong effects."""
        return not (self.duplicates or self.lost or self.wrong)


class System(Protocol):
    """The system under test: an object in a module that worker processes can import.

    `setting` says where the run keeps its data, and which store and lease to use.
    """

    @property
    def name(self) -> str:
        """One word for the scoreboard."""
        ...

    @property
    def effects(self) -> Sequence[Effect]:
        """Every kind of effect, with what is promised for it."""
        ...

    def open(self, setting: StormSetting) -> AbstractContextManager[dict[str, str]]:
        """Prepare the run in the supervisor: create tables, start stand-in servers. Yield the `services`."""
        ...

    def events(self, rng: random.Random) -> Iterator[StormEvent]:
        """Yield events without end, using only the random generator `rng`. The storm repeats and reorders them."""
        ...

    def worker(self, setting: StormSetting) -> Callable[[StormEvent], HandlerResult]:
        """Return the handler. Called once in each worker process. An exception of the handler counts as `failed`."""
        ...

    def audit(self, setting: StormSetting, events: Sequence[StormEvent]) -> Audit:
        """Count the effects of these `events`, and return the audit. Called after the last acknowledgement."""
        ...
