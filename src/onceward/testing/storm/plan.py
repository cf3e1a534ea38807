"""What is to be run. The same seed makes the same traffic and the same kills."""

from __future__ import annotations

import math
import random

from msgspec import Struct

from onceward.errors import ConfigurationError

EARLIEST, LATEST = (
    0.03,
    0.9,
)  # of the run: workers must have started, and others must have time to take over
WITHIN = 0.02  # seconds: so that a kill does not always fall right behind an acknowledgement
DELIVERIES = 1_000


class Plan(Struct, frozen=True):
    """So many `deliveries`, or new events for so many `seconds`; then everything that is still out is finished."""

    deliveries: int | None = None
    """Copies included. Without this and without `seconds`, a thousand."""
    seconds: float | None = None
    workers: int = 4
    """Processes."""
    kills: int | None = None
    """Default: one for every 50 deliveries, or one a second."""
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
        least = {"deliveries": 1, "workers": 1, "kills": 0, "duplicates": 0, "together": 0, "reorder": 0, "late": 0}
        for name, bound in least.items():
            if (number := getattr(self, name)) is not None and not number >= bound:
                raise ConfigurationError(f"{name}={number!r} is not possible", hint=f"write at least {bound}")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise ConfigurationError(f"seconds={self.seconds!r} is not possible", hint="write more than 0")

    @property
    def size(self) -> int | None:
        """Deliveries; None if the time decides."""
        if self.seconds is not None:
            return self.deliveries
        return DELIVERIES if self.deliveries is None else self.deliveries


class Kill(Struct, frozen=True, order=True):
    """Once this part of the run is over, and some milliseconds later: wherever the victim is just then."""

    after: float
    delay: float
    victim: int


def planned_kills(plan: Plan) -> list[Kill]:
    """All of them from the seed, and none at a chosen point of the work."""
    dice = random.Random(f"{plan.seed} kills")
    return sorted(
        Kill(dice.uniform(EARLIEST, LATEST), dice.uniform(0, WITHIN), dice.randrange(plan.workers))
        for _ in range(number_of_kills(plan))
    )


def number_of_kills(plan: Plan) -> int:
    if plan.kills is not None:
        return plan.kills
    if plan.seconds is not None:
        return round(plan.seconds)
    return (plan.size or 0) // 50
