"""Whether the evidence allows an automatic merge, however high the confidence is.

Every field adds what its level counts (`MatchLevel.evidence`); the sum must be at least 1. Name and town count 0: many
people share them. A birth date, a number, a phone or a street supports a merge. Typos, short forms and missing parts of
the name have to be outweighed. A different name or birth date prevents the merge, unless an identifying number agrees.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .kinds import NEVER, PERSONAL, SLIGHT

ENOUGH: Final = 1.0
"""The evidence that an automatic merge needs."""

IDENTIFYING: Final = 3.0
"""The evidence of a number that only one person has."""

DIFFERENCE: Final = -2.0
"""What each difference counts if an identifying number agrees."""


def sum_of_evidence(names: Iterable[float], fields: Iterable[float], places: Iterable[float], *, full: bool) -> float:
    """Return the evidence of all fields. `full`: neither record lacks a part of the name."""
    found = [*names, *fields]
    is_identified = any(one >= IDENTIFYING for one in found)
    differences = found.count(NEVER)
    if differences and not is_identified:
        return NEVER
    personal = found.count(PERSONAL) + (not full)
    total = sum(one for one in found if one not in (NEVER, PERSONAL)) + differences * DIFFERENCE
    if is_identified:  # the person may have moved
        return total + personal * SLIGHT + sum(one for one in places if one > 0)
    return total + personal * PERSONAL + sum(places)
