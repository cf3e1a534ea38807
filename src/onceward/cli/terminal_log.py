"""Print the log of the library on the terminal, unless the application has configured logging itself."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Collection

from .program import print_error

LIBRARY = "onceward"
RAISED = "onceward.raised"


def log_to_terminal(reported: Collection[str] = ()) -> None:
    """Print warnings and the errors of failed work. If logging is configured, its handlers print them instead.

    Call this after the application was imported. `reported` are names of events that the command prints itself. In
    both cases the messages of errors are shown, unless the application has set a level for the logger of RAISED.
    """
    raised = logging.getLogger(RAISED)
    if raised.level == logging.NOTSET:
        raised.setLevel(logging.DEBUG)
    logger = logging.getLogger(LIBRARY)
    for handler in [one for one in logger.handlers if isinstance(one, TerminalHandler)]:
        logger.removeHandler(handler)
    if not is_configured(logger):
        logger.addHandler(TerminalHandler(reported))


def is_configured(logger: logging.Logger) -> bool:
    """Return whether a handler prints the records of this logger."""
    one: logging.Logger | None = logger
    while one is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in one.handlers):
            return True
        one = one.parent if one.propagate else None
    return False


class TerminalHandler(logging.Handler):
    """Prints one line per event, and the traceback of work that failed."""

    def __init__(self, reported: Collection[str]) -> None:
        super().__init__(logging.WARNING)
        self._reported = reported

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "onceward_name", None) in self._reported:
            return
        error = getattr(record, "onceward_error", None)
        if isinstance(error, BaseException):
            traceback.print_exception(error, file=sys.stderr)
        else:
            print_error(record.getMessage())
