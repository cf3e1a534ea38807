"""Write events to the standard library's logging: logger `onceward`, fields in `extra`."""

from __future__ import annotations

import logging
import traceback

from onceward.engine.events import Bus, Event
from onceward.errors import ConfigurationError, OncewardError, OutcomeParked
from onceward.keys.readable import escape

logger = logging.getLogger("onceward")
raised = logging.getLogger("onceward.raised")
"""Tracebacks of failed work, for debugging. A separate logger, so that it can be disabled."""


def log(event: Event, more: str = "") -> None:
    level = int(event.level)
    if not logger.isEnabledFor(level):
        return
    details = ", ".join(
        f"{name} {escape(str(value))}"  # a message of a store may contain anything
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
        "%s %s [%s]%s%s",
        event.name,
        event.key,
        event.scope,
        f": {details}" if details else "",
        more,
        extra={f"onceward_{name}": getattr(event, name) for name in event.__struct_fields__},
    )


def log_raised(error: object, key: str) -> None:
    """Log the traceback of failed work that no caller receives: an HTTP sender must not, and a queue has no caller.

    Errors of Onceward are reported as events instead, except those that name a mistake in the program, such as
    InvalidKey. For a saga that is parked, the error of its step is logged. The message may quote the payload, so it is
    logged only if the level of this logger is DEBUG; it is also on the record. `onceward consume` shows it.
    """
    if isinstance(error, OutcomeParked):
        error = error.__cause__
    if isinstance(error, Exception) and (isinstance(error, ConfigurationError) or not isinstance(error, OncewardError)):
        where = "".join(traceback.format_tb(error.__traceback__))
        with_message = raised.isEnabledFor(logging.DEBUG)
        message = f": {escape(str(error))}" if with_message else ""
        raised.warning(
            "%s: the work raised %s%s in\n%s",
            escape(key),
            type(error).__qualname__,
            message,
            where,
            extra={"onceward_error": error} if with_message else None,  # a log handler may print every field
        )


def _log_listener_error(event: Event, error: Exception) -> None:
    logger.error("a listener failed on the event %s of %s: %r", event.name, event.key, error)


def logging_bus() -> Bus:
    """Return an event bus whose default listener is the log."""
    from .outage_log import OutageLog

    outages = OutageLog()
    outages.bus = Bus(outages, logger.isEnabledFor, _log_listener_error)
    return outages.bus
