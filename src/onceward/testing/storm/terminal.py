"""ANSI styles for terminals."""

from __future__ import annotations

import os
from typing import TextIO

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


class TerminalStyle:
    """Adds ANSI styles to text, but only on a terminal, and not if NO_COLOR is set."""

    def __init__(self, out: TextIO) -> None:
        self._enabled = out.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")

    def __call__(self, text: str, *modes: str) -> str:
        return f"\x1b[{';'.join(modes)}m{text}\x1b[0m" if self._enabled else text
