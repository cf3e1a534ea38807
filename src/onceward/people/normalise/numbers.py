"""Numbers and codes assigned to a person: customer, passport, social security."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_SEPARATORS: Final = re.compile(r"[\s./-]+")


def number(text: str) -> str:
    """`123-45 6789` → `123456789`: ignore spaces and punctuation."""
    return _SEPARATORS.sub("", unicodedata.normalize("NFKC", text)).casefold()


def external_id(text: str) -> str:
    """Return the id of another system unchanged, without surrounding spaces."""
    return unicodedata.normalize("NFC", text).strip()
