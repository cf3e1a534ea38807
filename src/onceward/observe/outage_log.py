"""Log one line when an outage of the store begins, and one when it ends, instead of a line per failed call.

An outage has one of two causes:

- The store does not respond. The outage ends when the store responds to any request.
- The store refuses to write, because it is full, broken or not set up. It may still answer reads, so the outage ends
  when the store has written something.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Final

from onceward.engine.events import Bus, Event

from .log import log, logger

SIGNS: Final = frozenset({"claim_failed", "renewal_failed", "settle_retried", "counting_failed", "schedule_delayed"})
"""Events that show an outage if their error means that the store cannot be used."""

CONSEQUENCES: Final = frozenset({"overdue"})
"""Further events that are only counted during an outage."""

RESPONSES: Final = frozenset({
    "acquired", "completed", "skipped", "mismatch", "applied", "stale", "released", "renewed", "lost", "parked",
    "resolved", "forgotten", "step_done",
})  # fmt: skip
"""Events that show that the store responds."""

WRITES: Final = frozenset({"acquired", "completed", "applied", "resolved", "step_done"})
"""The responses that show that the store has written something."""

UNAVAILABLE: Final = "StoreUnavailable"
REFUSALS: Final = ("StoreFull", "StoreBroken", "StoreNotSetUp")
UNUSABLE: Final = (UNAVAILABLE, *REFUSALS)
"""Names of error classes. The `error` of an event is such a name, or begins with it."""


class OutageLog:
    """The default listener of a client. Other listeners receive every event, even during an outage."""

    bus: Bus

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._since: float | None = None
        self._endings = RESPONSES
        self._counts: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        if self._is_sign(event):
            self._on_sign(event)
        elif self._since is None:
            log(event)
        elif event.name in CONSEQUENCES:
            self._counts[event.name] += 1
        else:
            if event.name in self._endings:
                self._on_response()
            log(event)

    def _is_sign(self, event: Event) -> bool:
        return event.name == "not_set_up" or (event.name in SIGNS and event.error.startswith(UNUSABLE))

    def _on_sign(self, event: Event) -> None:
        refused = event.name == "not_set_up" or event.error.startswith(REFUSALS)
        with self._lock:
            first = self._since is None
            if first:
                self._since = time.monotonic()
                self.bus.loud = _always  # so that an event of any level shows that the outage is over
            else:
                self._counts[event.name] += 1
            if refused:
                self._endings = WRITES
        if first and refused:
            log(event, "; the store cannot be used, so further problems are only counted until it writes again")
        elif first:
            log(event, "; the store does not respond, so further problems are only counted until it does")

    def _on_response(self) -> None:
        with self._lock:
            since, counts, refused = self._since, self._counts, self._endings is WRITES
            self._reset()
            self.bus.loud = logger.isEnabledFor
        if since is None:
            return
        lasted = f"{time.monotonic() - since:.1f} s"
        each = ", ".join(f"{number} {name}" for name, number in counts.most_common())
        listed = f" ({each})" if each else ""
        what = "works" if refused else "responds"
        logger.warning("the store %s again after %s; problems not logged: %d%s", what, lasted, counts.total(), listed)


def _always(_level: int) -> bool:
    return True
