"""Numbers that a browser sends."""

from __future__ import annotations

MAX_DIGITS = 19  # of a 64-bit number; Python refuses to convert texts of thousands of digits


def whole_number(text: str, default: int) -> int:
    """Return the number that the text contains, or `default` if it contains something else."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else default
