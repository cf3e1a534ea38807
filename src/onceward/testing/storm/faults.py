"""Kills and pauses: which of them are due, and whom they hit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .plan import Kill, Pause, Plan, planned_kills, planned_pauses
from .process import Worker

Strike = Kill | Pause


class Strikes:
    """Planned, then due after so much of the run, then done as soon as somebody can be hit."""

    def __init__(self, plan: Plan) -> None:
        planned: list[Strike] = [*planned_kills(plan), *planned_pauses(plan)]
        self._planned = sorted(planned, key=lambda strike: strike.after, reverse=True)
        self._due: list[tuple[float, Strike]] = []

    def advance(self, begun: float, now: float) -> None:
        """So much of the run has begun."""
        while self._planned and self._planned[-1].after < begun:
            strike = self._planned.pop()
            self._due.append((now + strike.delay, strike))

    @property
    def times(self) -> list[float]:
        """Of all that are due or soon will be."""
        return [at for at, _ in self._due]

    def hits(self, now: float, workers: Sequence[Worker]) -> Iterator[tuple[Strike, Worker]]:
        """What is to be done now, to whom: before the next one is asked for."""
        for at, strike in [due for due in self._due if due[0] <= now]:
            victim = _victim(strike.victim, workers) if _is_possible(strike, workers) else None
            if victim is not None:
                self._due.remove((at, strike))
                yield strike, victim

    def hold_back(self, now: float, workers: Sequence[Worker], left: int) -> bool:
        """Whether deliveries, of which so many are left, have to wait: if they are counted, all strikes hit somebody.

        A kill is possible again within milliseconds. A pause that waits for the end of another one keeps nobody: the
        work of the paused is to be done by others meanwhile.
        """
        now_due = [strike for at, strike in self._due if at <= now]
        possible = [strike for strike in now_due if _is_possible(strike, workers)]
        if any(isinstance(strike, Kill) and strike not in possible for strike in now_due):
            return True
        if possible and _victim(0, workers) is None:
            return False  # somebody must have something in hand to be hit
        return 0 < len(self._due) - bool(possible) >= left


def _victim(place: int, workers: Sequence[Worker]) -> Worker | None:
    """The one at that place or the next that has something in hand; one that has just been started has not."""
    ring = [*workers[place:], *workers[:place]]
    return next((worker for worker in ring if worker.in_hand is not None and worker.can_be_hit), None)


def _is_possible(strike: Strike, workers: Sequence[Worker]) -> bool:
    """Whoever kills faster than workers start sees nothing but workers that start; and most have to be awake."""
    alive = [worker for worker in workers if worker.ready and not worker.killed]
    if isinstance(strike, Pause):
        alive = [worker for worker in alive if worker.can_be_hit]
    return 2 * len(alive) > len(workers)
