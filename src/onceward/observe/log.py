"""Events as log lines of the standard library: logger `onceward`, fields in `extra`."""

from __future__ import annotations

import logging
import traceback

from onceward.engine.events import Bus, Event
from onceward.errors import OncewardError
from onceward.keys.readable import escape

logger = logging.getLogger("onceward")
raised = logging.getLogger("onceward.raised")
"""Where the work failed, for people who debug it; of its own, so that it can be turned off."""


def log(event: Event) -> None:
    level = int(event.level)
    if not logger.isEnabledFor(level):
        return
    details = ", ".join(
        f"{name} {escape(str(value))}"  # a store's message may hold anything
        for name, value in (
            ("reason", event.reason),
            ("attempt", event.attempt),
            ("earlier owner" if event.name == "mismatch" else "owner", event.owner),
            ("error", event.error),
        )
        if value
    )
    logger.log(
        level,
        "%s %s [%s]%s",
        event.name,
        event.key,
        event.scope,
        f": {details}" if details else "",
        extra={f"onceward_{name}": getattr(event, name) for name in event.__struct_fields__},
    )


def log_raised(error: object, key: str) -> None:
    """Where the work raised, if no caller gets it: a sender must not, and a queue has none. Ours are events.

    Its message stays on the record: it may quote what was delivered.
    """
    if isinstance(error, Exception) and not isinstance(error, OncewardError):
        where = "".join(traceback.format_tb(error.__traceback__))
        raised.warning("%s: the work raised %s in\n%s", escape(key), type(error).__qualname__, where)


def _complain(event: Event, error: Exception) -> None:
    logger.error("a listener failed on the event %s of %s: %r", event.name, event.key, error)


def logging_bus() -> Bus:
    """A bus whose default listener is the log."""
    return Bus(log, logger.isEnabledFor, _complain)
