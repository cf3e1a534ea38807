"""Log one line for each cause of an outage of the store, and one when it ends, instead of a line per failed call.

An outage has one or more causes, of two kinds:

- The store does not respond. The outage ends when the store responds to any request.
- The store refuses to write, because it is full, broken or not set up. It may still answer reads, so the outage ends
  when the store has written something, or with the first response after five minutes without a failure.
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
UNUSABLE: Final = (UNAVAILABLE, "StoreFull", "StoreBroken", "StoreNotSetUp")
"""Names of errors, each of which is a cause. The `error` of an event is such a name, or begins with it."""

QUIET: Final = 300.0
"""After this many seconds without a sign, any response ends an outage: a process that only reads never writes."""


class OutageLog:
    """The default listener of a client. Other listeners receive every event, even during an outage."""

    bus: Bus

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._since: float | None = None
        self._last_sign = 0.0
        self._causes: set[str] = set()
        self._counts: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        cause = _cause(event)
        if cause:
            self._on_sign(event, cause)
        elif self._since is None:
            log(event)
        elif event.name in CONSEQUENCES:
            self._counts[event.name] += 1
        else:
            if event.name in RESPONSES:
                self._on_response(wrote=event.name in WRITES)
            log(event)

    def _on_sign(self, event: Event, cause: str) -> None:
        with self._lock:
            self._last_sign = time.monotonic()
            if self._since is None:
                self._since = self._last_sign
                self.bus.loud = _always  # so that an event of any level shows that the outage is over
            is_new = cause not in self._causes
            self._causes.add(cause)
            if not is_new:
                self._counts[event.name] += 1
        if is_new and cause == UNAVAILABLE:
            log(event, "; the store does not respond, so further problems are only counted until it does")
        elif is_new:
            log(event, "; the store cannot be used, so further problems are only counted until it writes again")

    def _on_response(self, *, wrote: bool) -> None:
        with self._lock:
            if self._since is None:
                return
            refused = self._causes != {UNAVAILABLE}
            if refused and not wrote and time.monotonic() - self._last_sign < QUIET:
                self._causes.discard(UNAVAILABLE)  # it responds; if it stops again, that is logged again
                return
            lasted, counts = f"{time.monotonic() - self._since:.1f} s", self._counts
            self._reset()
            self.bus.loud = logger.isEnabledFor
        each = ", ".join(f"{number} {name}" for name, number in counts.most_common())
        listed = f" ({each})" if each else ""
        what = "works" if refused and wrote else "responds"
        logger.warning("the store %s again after %s; problems not logged: %d%s", what, lasted, counts.total(), listed)


def _cause(event: Event) -> str:
    """Return the name of the error if the event is a sign of an outage; "" otherwise."""
    if event.name == "not_set_up":
        return "StoreNotSetUp"
    names = UNUSABLE if event.name in SIGNS else ()
    return next((name for name in names if event.error.startswith(name)), "")


def _always(_level: int) -> bool:
    return True
