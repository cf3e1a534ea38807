"""What is to be run. The same seed makes the same traffic, the same kills and the same pauses."""

from __future__ import annotations

import math
import random

from msgspec import Struct

from onceward.errors import ConfigurationError

EARLIEST, LATEST = (
    0.03,
    0.9,
)  # of the run: workers must have started, and others must have time to take over
LATEST_PAUSE = 0.7  # who sleeps has to wake up again, and others take its work
WITHIN = 0.02  # seconds: so that a kill does not always fall right behind an acknowledgement
BEYOND = (0.1, 1.5)  # seconds that a pause is longer than the lease: others are at the work by then, or done with it
DELIVERIES = 1_000
PART = 4  # of the deliveries, at most one for so many has its worker paused


class Plan(Struct, frozen=True):
    """So many `deliveries`, or new events for so many `seconds`; then everything that is still out is finished."""

    deliveries: int | None = None
    """Copies included. Without this and without `seconds`, a thousand."""
    seconds: float | None = None
    workers: int = 4
    """Processes."""
    kills: int | None = None
    """Default: one for every 50 deliveries, or one a second."""
    pauses: int | None = None
    """Default: one for every 200 deliveries, or one in five seconds; none if there is only one worker."""
    duplicates: float = 1.5
    """Copies of an event, beside the original, on average."""
    together: float = 0.5
    """Share of the copies that come right behind the original, so that two workers have both at once."""
    reorder: int = 40
    """Places by which a first delivery may be late: later events overtake it."""
    late: int = 300
    """Places by which the other copies may be late."""
    seed: int = 1
    store: str = ""
    guarded: bool = True
    patience: float = 60.0
    """Seconds without any acknowledgement after which the run is given up."""
    folder: str = ""
    """Where the run leaves its files and the log of its workers; else a temporary folder, removed in the end."""

    def __post_init__(self) -> None:
        least = {"deliveries": 1, "workers": 1, "kills": 0, "pauses": 0, "duplicates": 0, "reorder": 0, "late": 0}
        for name, bound in least.items():
            if (number := getattr(self, name)) is not None and not bound <= number < math.inf:
                raise _impossible(name, number, f"write at least {bound}")
        if not 0 <= self.together <= 1:
            raise _impossible("together", self.together, "it is a share: write a number from 0 to 1")
        for name, length in {"seconds": self.seconds, "patience": self.patience}.items():
            if length is not None and not 0 < length < math.inf:
                raise _impossible(name, length, "write more than 0")
        if self.pauses and self.workers == 1:
            raise _impossible("pauses", self.pauses, "who is paused is replaced by another worker: write workers=2")
        if self.pauses and self.seconds is None and PART * self.pauses > (self.size or 0):
            raise _impossible("pauses", self.pauses, f"of {self.size} deliveries, write at most one for {PART}")

    @property
    def size(self) -> int | None:
        """Deliveries; None if the time decides."""
        if self.seconds is not None:
            return self.deliveries
        return DELIVERIES if self.deliveries is None else self.deliveries


def _impossible(name: str, number: object, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{name}={number!r} is not possible", hint=hint)


class Kill(Struct, frozen=True, order=True):
    """Once this part of the run is over, and some milliseconds later: wherever the victim is just then."""

    after: float
    delay: float
    victim: int


class Pause(Struct, frozen=True, order=True):
    """As a kill; but the victim is stopped for its lease and some time `beyond`, and then goes on as if nothing was."""

    after: float
    delay: float
    victim: int
    beyond: float


def planned_kills(plan: Plan) -> list[Kill]:
    """All of them from the seed, and none at a chosen point of the work."""
    dice = random.Random(f"{plan.seed} kills")
    return sorted(
        Kill(dice.uniform(EARLIEST, LATEST), dice.uniform(0, WITHIN), dice.randrange(plan.workers))
        for _ in range(number_of_kills(plan))
    )


def planned_pauses(plan: Plan) -> list[Pause]:
    """From dice of their own: with and without pauses, a seed kills alike."""
    dice = random.Random(f"{plan.seed} pauses")
    return sorted(
        Pause(
            after=dice.uniform(EARLIEST, LATEST_PAUSE),
            delay=dice.uniform(0, WITHIN),
            victim=dice.randrange(plan.workers),
            beyond=dice.uniform(*BEYOND),
        )
        for _ in range(number_of_pauses(plan))
    )


def number_of_kills(plan: Plan) -> int:
    if plan.kills is not None:
        return plan.kills
    if plan.seconds is not None:
        return round(plan.seconds)
    return (plan.size or 0) // 50


def number_of_pauses(plan: Plan) -> int:
    if plan.pauses is not None:
        return plan.pauses
    if plan.workers == 1:
        return 0
    if plan.seconds is not None:
        return round(plan.seconds / 5)
    return (plan.size or 0) // 200
