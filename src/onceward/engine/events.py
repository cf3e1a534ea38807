"""Events, one per transition, and the bus that delivers them. No clock and no logging: listeners add those."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from onceward.protocol.signals import came_by_signal

if TYPE_CHECKING:
    from onceward.keys.key import Key
    from onceward.protocol.record import CompletedRecord, Record

    from .history import HistoryCollector
    from .totals import Totals


class Level(IntEnum):
    """Log levels, as in the standard library."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


LEVELS: dict[str, Level] = {
    "acquired": Level.INFO,
    "completed": Level.INFO,
    "skipped": Level.INFO,
    "waiting": Level.INFO,
    "applied": Level.DEBUG,
    "stale": Level.INFO,
    "released": Level.INFO,
    "resolved": Level.INFO,
    "forgotten": Level.WARNING,
    "renewed": Level.DEBUG,
    "renewal_failed": Level.WARNING,
    "overdue": Level.WARNING,
    "failed": Level.WARNING,
    "settle_retried": Level.WARNING,
    "retry_delay_failed": Level.WARNING,
    "slow_transaction": Level.WARNING,
    "open_transaction": Level.WARNING,
    "mode_changed": Level.WARNING,
    "would_skip": Level.INFO,
    "switched_off": Level.DEBUG,
    "not_set_up": Level.ERROR,
    "still_held": Level.WARNING,
    "missed": Level.WARNING,
    "rejected": Level.WARNING,
    "schedule_delayed": Level.WARNING,
    "delivered_later": Level.INFO,
    "queue_failed": Level.WARNING,
    "dead_lettered": Level.ERROR,
    "claim_failed": Level.WARNING,
    "counting_failed": Level.WARNING,
    "mismatch": Level.ERROR,
    "lost": Level.ERROR,
    "parked": Level.ERROR,
    "unknown": Level.ERROR,
    "unprotected": Level.ERROR,
    "result_not_stored": Level.ERROR,
    "step_done": Level.INFO,
    "step_undone": Level.INFO,
    "step_failed": Level.WARNING,
    "compensating": Level.WARNING,
}
"""All events and their log levels."""

NUMBERS = {name: int(level) for name, level in LEVELS.items()}
"""The same as plain integers, which compare faster."""


class Event(Struct, frozen=True, kw_only=True):
    """What happened, to which key. It never contains a payload or a result; the key is already escaped.

    - `name`: what happened, such as `completed`; the page about events lists all names.
    - `key`, `scope`: the readable key, and its scope.
    - `reason`: why, in a few words.
    - `attempt`, `token`, `state`, `owner`: those of the record, if they are known.
    - `error`: the exception, as text.
    """

    name: str
    key: str
    scope: str
    reason: str = ""
    attempt: int = 0
    token: int = 0
    state: str = ""
    owner: str = ""
    error: str = ""

    @property
    def level(self) -> Level:
        """The log level of the event, from DEBUG to ERROR."""
        return LEVELS[self.name]


Listener = Callable[[Event], None]


class Emit(Protocol):
    """Builds an event and passes it to the listeners."""

    def __call__(
        self, name: str, key: Key, record: Record | CompletedRecord | None = None, *, reason: str = "", error: str = ""
    ) -> None: ...


class Bus:
    """Delivers events to the listeners. `loud(level)` returns whether the default listener (logging) wants them.

    `counts` counts every event by name, with or without listeners. `totals`, if set, counts them by scope too, and
    `history` collects what happened to each key.
    """

    totals: Totals | None = None
    history: HistoryCollector | None = None

    def __init__(
        self, default: Listener, loud: Callable[[int], bool], complain: Callable[[Event, Exception], None]
    ) -> None:
        self._default = default
        self.loud = loud
        self._complain = complain
        self.listeners: tuple[Listener, ...] = ()
        self.counts: dict[str, int] = dict.fromkeys(LEVELS, 0)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for every event; return a function that unsubscribes it.

        If a listener raises, the error is logged, and the work is not affected.
        """
        self.listeners = (*self.listeners, listener)

        def unsubscribe() -> None:
            self.listeners = tuple(one for one in self.listeners if one is not listener)

        return unsubscribe

    def wants(self, name: str, times: int = 1) -> bool:
        """Count the event, and return whether there is a listener for it."""
        self.counts[name] += times
        loud = self.loud
        return True if self.listeners else loud(NUMBERS[name])

    def count(self, name: str, scope: str, times: int = 1) -> None:
        """Count an event by scope, if `totals` is set: for events that are not emitted through the engine."""
        if self.totals is not None:
            self.totals.add(scope, name, times)

    def emit(self, event: Event) -> None:
        for listener in (self._default, *self.listeners):
            try:
                listener(event)
            except Exception as error:  # a listener must never change what the work does
                if came_by_signal(error):
                    raise
                self._complain(event, error)
