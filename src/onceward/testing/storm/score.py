"""What happened so far, as the workers told it."""

from __future__ import annotations

from msgspec import Struct

from .contract import ACKNOWLEDGED, Answer


class Score(Struct):
    """Deliveries and what was said about them; kills and pauses; and how much of the run is over."""

    delivered: int = 0
    """Handed to a worker, each time anew."""
    acknowledged: int = 0
    executed: int = 0
    replayed: int = 0
    stale: int = 0
    parked: int = 0
    rejected: int = 0
    running: int = 0
    failed: int = 0
    taken_over: int = 0
    killed: int = 0
    redelivered: int = 0
    """In the hands of a worker that was killed."""
    paused: int = 0
    """Stopped for longer than its lease, with a delivery in hand, and continued."""
    seconds: float = 0.0
    progress: float = 0.0
    """From 0 to 1."""
    complaint: str = ""
    """The last reason for a delivery that failed."""

    def count(self, answer: Answer, *, orphaned: bool, again: bool = False) -> None:
        """`orphaned`: a worker was killed or paused with that event in hand. Second attempts may also follow failures.

        `again`: somebody else has acknowledged the same delivery.
        """
        setattr(self, answer.said, getattr(self, answer.said) + 1)
        self.acknowledged += answer.said in ACKNOWLEDGED and not again
        self.taken_over += orphaned and answer.said == "executed" and answer.attempt > 1
        if answer.said == "failed":
            self.complaint = answer.why
