"""Folding: remove differences of accents, case, punctuation and character width."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_LENGTH: Final = 300
"""Characters that are used; the rest of a text is ignored.

Longer names and streets are mistakes, and ten megabytes of input must not take time.
"""

_PLAIN: Final = str.maketrans(
    {"ø": "o", "Ø": "O"}
    | {"ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "æ": "ae", "Æ": "AE", "œ": "oe", "\u0131": "i", "’": "'"}
)
"""Letters that Unicode does not decompose."""

_APOSTROPHES: Final = re.compile(r"(?<=\w)'(?=\w)")
_BREAKS: Final = re.compile(r"[\W_]+")
_ASCII_WORDS: Final = re.compile(r"[a-z0-9]+(?: [a-z0-9]+)*")


def fold(text: str) -> str:
    """Return lower-case words separated by single spaces: `O'Brien-Müller ` → `obrien muller`."""
    if _ASCII_WORDS.fullmatch(text):
        return text[:MAX_LENGTH]
    text = text[:MAX_LENGTH].translate(_PLAIN)
    if not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in decomposed if not unicodedata.combining(char))
    return _BREAKS.sub(" ", _APOSTROPHES.sub("", text.casefold())).strip()


def trimmed(text: str) -> str:
    """Return the text in composed Unicode form with single spaces."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())
