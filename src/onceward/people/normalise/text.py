"""Folding: what is left of a text when accents, case, punctuation and the width of characters do not count."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

LONGEST: Final = 300
"""Characters that are looked at: longer names and streets are mistakes, and ten megabytes of one must cost nothing."""

_PLAIN: Final = str.maketrans(
    {"ø": "o", "Ø": "O"}
    | {"ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "æ": "ae", "Æ": "AE", "œ": "oe", "\u0131": "i", "’": "'"}
)
"""Letters that Unicode does not take apart."""

_APOSTROPHES: Final = re.compile(r"(?<=\w)'(?=\w)")
_BREAKS: Final = re.compile(r"[\W_]+")
_ASCII_WORDS: Final = re.compile(r"[a-z0-9]+(?: [a-z0-9]+)*")


def fold(text: str) -> str:
    """Lower-case words with one blank in between: `O'Brien-Müller ` → `obrien muller`."""
    if _ASCII_WORDS.fullmatch(text):
        return text[:LONGEST]
    text = text[:LONGEST].translate(_PLAIN)
    if not text.isascii():
        apart = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in apart if not unicodedata.combining(char))
    return _BREAKS.sub(" ", _APOSTROPHES.sub("", text.casefold())).strip()


def trimmed(text: str) -> str:
    """The text as people write it, composed, with single blanks."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())
