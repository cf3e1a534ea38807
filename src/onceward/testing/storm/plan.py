"""The plan of a run. The same seed produces the same traffic, the same kills and the same pauses."""

from __future__ import annotations

import math
import random

from msgspec import Struct

from onceward.errors import ConfigurationError

EARLIEST, LATEST = 0.03, 0.9  # share of the run: workers must have started, and other workers need time to take over
LATEST_PAUSE = 0.7  # the paused worker must resume in time, and others take over its work before
MAX_DELAY = 0.02  # seconds, so that a kill does not always happen right after an acknowledgement
PAUSE_BEYOND_LEASE = (0.1, 1.5)  # seconds that a pause is longer than the lease: then others have taken over
DELIVERIES = 1_000
DELIVERIES_PER_PAUSE = 4  # at most one pause per this many deliveries


class Plan(Struct, frozen=True):
    """Runs this many `deliveries`, or new events for this many `seconds`; then finishes unacknowledged deliveries."""

    deliveries: int | None = None
    """Including copies. Without this and `seconds`: 1,000."""
    seconds: float | None = None
    workers: int = 4
    """Processes."""
    kills: int | None = None
    """Default: one per 50 deliveries, or one per second."""
    pauses: int | None = None
    """Default: one per 200 deliveries, or one per five seconds; none if there is only one worker."""
    duplicates: float = 1.5
    """Average number of copies of an event, in addition to the original."""
    together: float = 0.5
    """Share of the copies that follow directly after the original, so that two workers process both concurrently."""
    reorder: int = 40
    """Positions by which a first delivery may be late, so that later events overtake it."""
    late: int = 300
    """Positions by which the other copies may be late."""
    seed: int = 1
    """The same seed produces the same traffic, kills and pauses."""
    store: str = ""
    """The URL of a store. If empty, the system uses its embedded default."""
    guarded: bool = True
    """If False, the workers run without Onceward, and the audit should find duplicates."""
    patience: float = 60.0
    """Seconds without any acknowledgement after which the run fails."""
    folder: str = ""
    """Where the run stores its files and the log of its workers. Default: a temporary folder, deleted at the end."""

    def __post_init__(self) -> None:
        minimums = {"deliveries": 1, "workers": 1, "kills": 0, "pauses": 0, "duplicates": 0, "reorder": 0, "late": 0}
        for name, bound in minimums.items():
            if (number := getattr(self, name)) is not None and not bound <= number < math.inf:
                raise _invalid(name, number, f"use at least {bound}")
        if not 0 <= self.together <= 1:
            raise _invalid("together", self.together, "it is a share: use a number from 0 to 1")
        for name, length in {"seconds": self.seconds, "patience": self.patience}.items():
            if length is not None and not 0 < length < math.inf:
                raise _invalid(name, length, "use a number greater than 0")
        if self.pauses and self.workers == 1:
            raise _invalid(
                "pauses", self.pauses, "another worker must take over from a paused one: use at least workers=2"
            )
        if self.pauses and self.seconds is None and DELIVERIES_PER_PAUSE * self.pauses > (self.size or 0):
            raise _invalid(
                "pauses", self.pauses, f"use at most one per {DELIVERIES_PER_PAUSE} of the {self.size} deliveries"
            )

    @property
    def size(self) -> int | None:
        """Number of deliveries; None if `seconds` limits the run."""
        if self.seconds is not None:
            return self.deliveries
        return DELIVERIES if self.deliveries is None else self.deliveries


def _invalid(name: str, number: object, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{name}={number!r} is not possible", hint=hint)


class Kill(Struct, frozen=True, order=True):
    """Kills a worker after this share of the run and a delay, wherever the victim is at that time."""

    after: float
    delay: float
    victim: int


class Pause(Struct, frozen=True, order=True):
    """Stops a worker for its lease and some time `beyond` it. The worker then resumes and does not know about it."""

    after: float
    delay: float
    victim: int
    beyond: float


def planned_kills(plan: Plan) -> list[Kill]:
    """Return the kills. They depend only on the seed; none is at a chosen point of the work."""
    rng = random.Random(f"{plan.seed} kills")
    return sorted(
        Kill(rng.uniform(EARLIEST, LATEST), rng.uniform(0, MAX_DELAY), rng.randrange(plan.workers))
        for _ in range(number_of_kills(plan))
    )


def planned_pauses(plan: Plan) -> list[Pause]:
    """Return the pauses. They use their own generator: a seed plans the same kills with and without pauses."""
    rng = random.Random(f"{plan.seed} pauses")
    return sorted(
        Pause(
            after=rng.uniform(EARLIEST, LATEST_PAUSE),
            delay=rng.uniform(0, MAX_DELAY),
            victim=rng.randrange(plan.workers),
            beyond=rng.uniform(*PAUSE_BEYOND_LEASE),
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
