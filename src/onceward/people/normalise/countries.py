"""Countries, as ISO 3166 codes of two letters."""

from __future__ import annotations

from functools import cache, lru_cache

from .country_names import NAMES
from .text import fold


@lru_cache(maxsize=4096)  # there are few countries, and each occurs often
def country(text: str) -> str:
    """`Deutschland`, `deu` and `Germany` → `DE`. An unknown country is returned folded."""
    folded = fold(text)
    return _codes().get(folded.removeprefix("the "), folded)


@cache
def _codes() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in NAMES.strip().splitlines():
        code, three, names = line.split(":")
        found |= {one.strip(): code for one in (code.lower(), three.lower(), *names.split(","))}
    return found
