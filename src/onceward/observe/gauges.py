"""Gauges of the records that need attention. No event reports them, so the store is read on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from onceward.engine.events import Listener
from onceward.errors import OncewardError
from onceward.protocol.ports import Store
from onceward.runtime.threads import ThreadRuntime, run

from .record_figures import record_figures
from .rules import RecordFigures
from .thresholds import parse_thresholds

GAUGES: Final = {
    "old_pending": ("old_pending", "records that are PENDING for too long"),
    "parked": ("parked_records", "records whose effect is unknown, which an operator must resolve"),
    "failed_final": ("final_failures", "records that failed in the last day and are not retried"),
    "stuck_schedules": ("stuck_schedules", "schedules of this program whose next slot is overdue"),
}
"""The name and description of the gauge for each field of `RecordFigures`."""

ReadFigures = Callable[[], RecordFigures | None]
"""Return the figures by operation; None if the store does not answer."""

TIMEOUT = 5.0
"""Timeout in seconds. A scrape waits for all metrics, and its own timeout is short."""


class ObservedClient(Protocol):
    """The part of `Once` and `AsyncOnce` that metrics need."""

    schedules: dict[str, Any]

    @property
    def store(self) -> Store: ...
    def subscribe(self, listener: Listener) -> Callable[[], None]: ...


def figures_reader(once: ObservedClient, rules: dict[str, Any]) -> ReadFigures:
    """Return a function that reads the figures.

    It has its own connection, because metrics libraries use their own threads. It reads only schedules
    that the client declares: to find others, it would have to count all records at every scrape.
    """
    thresholds = parse_thresholds(rules)

    def read() -> RecordFigures | None:
        store = once.store
        clone = store.clone()
        schedules = [planned.schedule for planned in once.schedules.values()]
        cursors = [key.id for one in schedules if one.timetable is not None for key in one.cursors]
        try:
            run(clone.open(ThreadRuntime()))
            try:
                return run(record_figures(clone, thresholds, TIMEOUT, cursors))
            finally:
                if clone is not store:
                    run(clone.close())
        except OncewardError:  # other metrics show that the store is down, and this must not fail the scrape
            return None

    return read
