"""Numbers and codes that somebody gave to a person: customer, passport, social security."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_LEFT_OUT: Final = re.compile(r"[\s./-]+")


def number(text: str) -> str:
    """`123-45 6789` → `123456789`: as people write and read numbers."""
    return _LEFT_OUT.sub("", unicodedata.normalize("NFKC", text)).casefold()


def external_id(text: str) -> str:
    """Somebody else's id, as it is: only blanks around it do not count."""
    return unicodedata.normalize("NFC", text).strip()
