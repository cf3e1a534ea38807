"""The figures of a run, counted from the results of the workers."""

from __future__ import annotations

from msgspec import Struct

from .contract import ACKNOWLEDGED, HandlerResult


class Score(Struct):
    """Deliveries and their results, kills, pauses, and the progress of the run."""

    delivered: int = 0
    """Sent to a worker; redeliveries count again."""
    acknowledged: int = 0
    """Deliveries that need no redelivery. A second acknowledgement of the same delivery does not count."""
    executed: int = 0
    """Results: the effect happened in this delivery."""
    replayed: int = 0
    """Results: the effect had happened before."""
    stale: int = 0
    """Results: a newer event had been applied."""
    parked: int = 0
    """Results: it is unknown whether the effect happened."""
    rejected: int = 0
    """Results: the delivery can never succeed."""
    running: int = 0
    """Results: another worker was processing the same event."""
    failed: int = 0
    """Results: the attempt failed and is repeated."""
    taken_over: int = 0
    """Executed deliveries whose earlier worker was killed or paused."""
    killed: int = 0
    """Workers that were killed with SIGKILL."""
    redelivered: int = 0
    """Deliveries whose worker was killed."""
    paused: int = 0
    """Workers that were stopped during a delivery for longer than their lease, and resumed."""
    seconds: float = 0.0
    """The duration of the run so far."""
    progress: float = 0.0
    """From 0 to 1."""
    last_failure: str = ""
    """The reason of the last failed delivery."""

    def count(self, result: HandlerResult, *, orphaned: bool, again: bool = False) -> None:
        """Count a result.

        `orphaned`: a worker was killed or paused while it processed the event. It distinguishes takeovers from second
        attempts after failures. `again`: another worker has already acknowledged the same delivery.
        """
        setattr(self, result.kind, getattr(self, result.kind) + 1)
        self.acknowledged += result.kind in ACKNOWLEDGED and not again
        self.taken_over += orphaned and result.kind == "executed" and result.attempt > 1
        if result.kind == "failed":
            self.last_failure = result.why
