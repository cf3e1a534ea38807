"""Kills and pauses: when they are due, and which worker they hit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .plan import Kill, Pause, Plan, planned_kills, planned_pauses
from .process import Worker

Fault = Kill | Pause


class FaultSchedule:
    """Faults are planned, become due after a share of the run, and happen as soon as a worker is eligible."""

    def __init__(self, plan: Plan) -> None:
        planned: list[Fault] = [*planned_kills(plan), *planned_pauses(plan)]
        self._planned = sorted(planned, key=lambda fault: fault.after, reverse=True)
        self._due: list[tuple[float, Fault]] = []

    def advance(self, started_share: float, now: float) -> None:
        """Schedule the faults of the part of the run that has started."""
        while self._planned and self._planned[-1].after < started_share:
            fault = self._planned.pop()
            self._due.append((now + fault.delay, fault))

    @property
    def times(self) -> list[float]:
        """Times of the faults that are due now or soon."""
        return [at for at, _ in self._due]

    def due(self, now: float, workers: Sequence[Worker]) -> Iterator[tuple[Fault, Worker]]:
        """Yield the faults to inject now, each with its victim.

        The caller must inject one before it asks for the next.
        """
        for at, fault in [due for due in self._due if due[0] <= now]:
            victim = _victim(fault.victim, workers) if _is_possible(fault, workers) else None
            if victim is not None:
                self._due.remove((at, fault))
                yield fault, victim

    def must_hold_back(self, now: float, workers: Sequence[Worker], left: int) -> bool:
        """Return whether deliveries must wait, so that every planned fault still hits a worker.

        `left` are not delivered yet.

        A kill is possible again within milliseconds. A pause that waits for the end of another pause does not hold
        deliveries back: other workers must process those of the paused worker.
        """
        now_due = [fault for at, fault in self._due if at <= now]
        possible = [fault for fault in now_due if _is_possible(fault, workers)]
        if any(isinstance(fault, Kill) and fault not in possible for fault in now_due):
            return True
        if possible and _victim(0, workers) is None:
            return False  # only a worker with a delivery can be hit
        return 0 < len(self._due) - bool(possible) >= left


def _victim(index: int, workers: Sequence[Worker]) -> Worker | None:
    """Return the worker at this index, or the next one, that has a delivery. A worker that just started has none."""
    candidates = [*workers[index:], *workers[:index]]
    return next((worker for worker in candidates if worker.current is not None and worker.is_eligible), None)


def _is_possible(fault: Fault, workers: Sequence[Worker]) -> bool:
    """Return whether most workers are alive and not paused. Faster kills would only hit workers that are starting."""
    alive = [worker for worker in workers if worker.ready and not worker.killed]
    if isinstance(fault, Pause):
        alive = [worker for worker in alive if worker.is_eligible]
    return 2 * len(alive) > len(workers)
