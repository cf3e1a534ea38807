"""Tell a misspelt given name from another name.

Twins share everything but the given name, and some parents choose names that differ by one letter: Rahul and Rahil,
Karina and Darina. So a letter alone does not show a typo. It does only if one spelling is a known name, and the other
one begins with the same letter, is unknown and is hardly a name:

- It has a sequence of letters that no name has: `patrkck`.
- Or the known name is long, and an inner letter is wrong: `elizaseth`. Similar long names are spellings of one name.
"""

from __future__ import annotations

from typing import Final

from rapidfuzz.distance import OSA

from .known_names import is_known
from .name_letters import is_like_a_name

LONG_NAME: Final = 9
"""Letters. Two names of this length that differ by one inner letter are spellings of one name."""


def is_misspelt(here: str, there: str) -> bool:
    """Return whether one of two similar names is certainly the other one with a typo."""
    known, other = sorted((here, there), key=_is_unknown)
    if _is_unknown(known) or not _is_unknown(other) or known[0] != other[0]:
        return False
    if not all(map(is_like_a_name, other.split())):
        return True
    return len(known) >= LONG_NAME and known[-1] == other[-1] and OSA.distance(known, other) == 1


def _is_unknown(name: str) -> bool:
    return not all(map(is_known, name.split()))
