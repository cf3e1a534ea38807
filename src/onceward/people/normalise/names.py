"""Names of people."""

from __future__ import annotations

from typing import Final

from .placeholders import is_placeholder_name
from .text import fold

_LIST: Final = """
mr mrs ms miss mx dr prof sir madam herr frau hr fr mme mlle monsieur madame sr sra srta don dona
"""
_TITLES: Final = frozenset(_LIST.split())
"""Removed only at the start of a name, and only if at least one word is left."""

GENERATIONS: Final = frozenset({"senior", "sen", "sr", "junior", "jun", "jr", "ii", "iii", "iv"})
"""Words after a surname that tell father and son apart."""


def name(text: str) -> str:
    """A given name or a surname: `Dr. José-María` → `jose maria`."""
    words = fold(text).split()
    while len(words) > 1 and words[0] in _TITLES:
        del words[0]
    found = " ".join(words)
    return "" if is_placeholder_name(found) else found


def full_name(text: str) -> tuple[str, str]:
    """Return given name and surname of `Anna Maria Schmidt` or `Schmidt, Anna Maria`. A single word is a surname.

    `Robert Downey Jr.` has the surname `downey jr`.
    """
    last, comma, first = text.partition(",")
    if comma:
        return name(first), name(last)
    words = name(text).split()
    last_words = 2 if len(words) > 2 and words[-1] in GENERATIONS else 1  # noqa: PLR2004 (a name of its own before it)
    return name(" ".join(words[:-last_words])), name(" ".join(words[-last_words:]))
