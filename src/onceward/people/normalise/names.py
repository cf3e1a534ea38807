"""Names of people."""

from __future__ import annotations

from typing import Final

from .text import fold

_LIST: Final = """
mr mrs ms miss mx dr prof sir madam herr frau hr fr mme mlle monsieur madame sr sra srta don dona
"""
_TITLES: Final = frozenset(_LIST.split())
"""Removed only at the start of a name, and only if at least one word is left."""


def name(text: str) -> str:
    """A given name or a surname: `Dr. José-María` → `jose maria`."""
    words = fold(text).split()
    while len(words) > 1 and words[0] in _TITLES:
        del words[0]
    return " ".join(words)


def full_name(text: str) -> tuple[str, str]:
    """Return given name and surname of `Anna Maria Schmidt` or `Schmidt, Anna Maria`. A single word is a surname."""
    last, comma, first = text.partition(",")
    if comma:
        return name(first), name(last)
    given, _, surname = name(text).rpartition(" ")
    return given, surname
