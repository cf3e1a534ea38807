"""Exceptions out of the blue: Python runs signal handlers between any two steps, also while we catch what others raise.

Such an exception is meant for the program and not for us. It shows only in its traceback, in which a handler is a frame
like any other. So a handler cannot be told apart that is not written in Python, or that was replaced before it raised.
"""

from __future__ import annotations

import functools
import sys
from types import CodeType
from typing import Any


def came_by_signal(error: BaseException) -> bool:
    """Whether a handler that is installed for a signal raised it."""
    signal = sys.modules.get("signal")  # who has a handler has the module
    if signal is None:
        return False
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):  # SIG_DFL, SIG_IGN, or one that was not installed by Python
        return None
    code = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None
