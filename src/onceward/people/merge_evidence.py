"""Whether the evidence allows an automatic merge, however high the confidence is.

Every field adds what its level counts (`MatchLevel.evidence`); the sum must be at least 1. Name and town count 0: many
people share them. A birth date, a number, a phone or a street supports a merge. Typos, short forms and missing parts of
the name have to be outweighed. A different name or birth date prevents the merge, unless an identifying number agrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .kinds import NEVER, ONE_LETTER, PERSONAL, RENAMED, SLIGHT

ENOUGH: Final = 1.0
"""The evidence that an automatic merge needs."""

IDENTIFYING: Final = 3.0
"""The evidence of a number that only one person has."""

OWN: Final = 2.5
"""The least evidence of a number that twins do not share."""

DIFFERENCE: Final = -2.0
"""What each difference counts if an identifying number agrees."""

OTHER_GIVEN_NAME: Final = -4.0
"""What another given name counts then. Members of a household sometimes use each other's numbers: what a household
shares does not count, so that the birth date has to agree, too."""

MISSING_PART: Final = -2.0
"""What a missing part of the name counts."""

TWO_LINES: Final = 2.0
"""The evidence of an address of which two lines agree. It counts even if the given names differ: registers that keep
such addresses (as the febrl sets do) check numbers."""

BORN_THE_SAME_DAY: Final = 2.0
"""The least evidence of a field that tells the members of a household apart."""

SHARED_BY_HOUSEHOLD: Final = 1.0
"""The most that a field counts which a household shares, such as the phone."""


def sum_of_evidence(
    names: Sequence[float],
    fields: Sequence[float],
    places: Sequence[float],
    *,
    full: bool,
    other_given: bool = False,
    same_key: bool = False,
) -> float:
    """Return the evidence of all fields.

    `full`: neither record lacks a part of the name. `other_given`: the given names differ. `same_key`: a strong key is
    equal.
    """
    found = [*names, *fields]
    is_identified = any(one >= IDENTIFYING for one in found)
    if ONE_LETTER in found:
        if not same_key and max(fields, default=0.0) < OWN:
            return NEVER
        found = [PERSONAL if one == ONE_LETTER else one for one in found]
    differences = found.count(NEVER) + (found.count(RENAMED) if is_identified else 0)
    if NEVER in found and not is_identified:
        return NEVER
    if RENAMED in found and max(fields, default=0.0) < BORN_THE_SAME_DAY:
        return NEVER
    personal = found.count(PERSONAL) + (not full)
    counted = [one for one in found if one not in (NEVER, PERSONAL) and not (is_identified and one == RENAMED)]
    if other_given:
        kept = sum(one for one in counted if one <= SLIGHT or one > SHARED_BY_HOUSEHOLD)
        address = TWO_LINES if sum(places) >= TWO_LINES else 0.0
        return kept + OTHER_GIVEN_NAME + (differences - 1 + personal) * SLIGHT + address
    total = sum(counted) + differences * DIFFERENCE
    if is_identified:  # the person may have moved
        return total + personal * SLIGHT + sum(one for one in places if one > 0)
    total += found.count(PERSONAL) * PERSONAL + sum(places) + (0.0 if full else MISSING_PART)
    is_personal = max(fields, default=0.0) >= BORN_THE_SAME_DAY
    return total if is_personal or not personal else min(total, 0.0)  # it may be another member of the household
