"""Colours, where they are wanted."""

from __future__ import annotations

import os
from typing import TextIO

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"


class Paint:
    """Only on a terminal, and not under NO_COLOR."""

    def __init__(self, out: TextIO) -> None:
        self._colours = out.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")

    def __call__(self, text: str, *modes: str) -> str:
        return f"\x1b[{';'.join(modes)}m{text}\x1b[0m" if self._colours else text
