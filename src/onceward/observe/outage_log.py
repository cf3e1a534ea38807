"""Log one line when the store stops responding, and one when it responds again, instead of a line per failed call."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Final

from onceward.engine.events import Bus, Event

from .log import log, logger

SIGNS: Final = frozenset({"renewal_failed", "settle_retried", "counting_failed", "schedule_delayed"})
"""Events that show an outage if their error means that the store is unavailable."""

CONSEQUENCES: Final = frozenset({"overdue"})
"""Further events that are only counted during an outage."""

RESPONSES: Final = frozenset({
    "acquired", "completed", "skipped", "mismatch", "applied", "stale", "released", "renewed", "lost", "parked",
    "resolved", "forgotten", "step_done",
})  # fmt: skip
"""Events that show that the store responds."""

UNAVAILABLE: Final = "StoreUnavailable"


class OutageLog:
    """The default listener of a client. Other listeners receive every event, even during an outage."""

    bus: Bus

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._since: float | None = None
        self._counts: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        if self._is_sign(event):
            self._on_sign(event)
        elif self._since is None:
            log(event)
        elif event.name in CONSEQUENCES:
            self._counts[event.name] += 1
        else:
            if event.name in RESPONSES:
                self._on_response()
            log(event)

    def _is_sign(self, event: Event) -> bool:
        if event.name == "claim_failed":
            return event.error == UNAVAILABLE
        return event.name in SIGNS and UNAVAILABLE in event.error

    def _on_sign(self, event: Event) -> None:
        with self._lock:
            first = self._since is None
            if first:
                self._since = time.monotonic()
                self.bus.loud = _always  # so that an event of any level shows that the store responds again
            else:
                self._counts[event.name] += 1
        if first:
            log(event, "; the store does not respond, so further problems are only counted until it does")

    def _on_response(self) -> None:
        with self._lock:
            since, counts = self._since, self._counts
            self._reset()
            self.bus.loud = logger.isEnabledFor
        if since is None:
            return
        lasted = f"{time.monotonic() - since:.1f} s"
        each = ", ".join(f"{number} {name}" for name, number in counts.most_common())
        listed = f" ({each})" if each else ""
        logger.warning("the store responds again after %s; problems not logged: %d%s", lasted, counts.total(), listed)


def _always(_level: int) -> bool:
    return True
