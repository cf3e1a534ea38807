"""Cities, postcodes and streets."""

from __future__ import annotations

import re
from typing import Final

from .text import fold

_IN_BRACKETS: Final = re.compile(r"\([^()]*\)")
_SHORT: Final = {
    "st": "saint",
    "ste": "sainte",
    "mt": "mount",
    "ft": "fort",
}
_STREETS: Final = {
    "st": "street",
    "str": "strasse",
    "rd": "road",
    "ave": "avenue",
    "av": "avenue",
    "blvd": "boulevard",
    "ln": "lane",
    "dr": "drive",
    "pl": "place",
    "cres": "crescent",
    "ct": "court",
    "sq": "square",
    "hwy": "highway",
    "pde": "parade",
    "tce": "terrace",
    "cct": "circuit",
    "cl": "close",
    "gr": "grove",
    "esp": "esplanade",
    "apt": "apartment",
    "n": "north",
    "s": "south",
    "e": "east",
    "w": "west",
}


def city(text: str) -> str:
    """`St. Gallen (SG)` → `saint gallen`."""
    words = fold(_IN_BRACKETS.sub(" ", text)).split()
    if len(words) > 1 and words[0] in _SHORT:
        words[0] = _SHORT[words[0]]
    return " ".join(words)


def postcode(text: str) -> str:
    """`sw1a 1aa` → `sw1a1aa`; `D-10115` → `d10115`."""
    return fold(text).replace(" ", "")


def street(text: str) -> str:
    """`12 Main St.` → `12 main street`; `Hauptstr. 5` → `hauptstrasse 5`."""
    words = fold(text).split()
    expanded = [_STREETS.get(word, word) for word in words[1:]]
    return " ".join(_expand_street(word) for word in [*words[:1], *expanded])


def _expand_street(word: str) -> str:
    return word.removesuffix("str") + "strasse" if len(word) > 4 and word.endswith("str") else word  # noqa: PLR2004 (`str` and a name)
