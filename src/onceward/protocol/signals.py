"""Recognise exceptions raised by signal handlers. Python runs handlers between any two steps, even in `except` blocks.

Such an exception is meant for the program, not for us. Only its traceback shows the handler, as an ordinary frame. A
handler that is not written in Python, or that was replaced before it raised, cannot be recognised.
"""

from __future__ import annotations

import functools
import sys
from types import CodeType
from typing import Any


def came_by_signal(error: BaseException) -> bool:
    """Return whether an installed signal handler raised this exception."""
    signal = sys.modules.get("signal")  # a program with a handler has imported it
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
