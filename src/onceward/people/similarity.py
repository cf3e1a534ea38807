"""Compute how likely it is that a record belongs to a person.

Four explanations compete: the same person, two members of one household, two colleagues, strangers. Each field makes
each of them more or less likely (see `kinds`). A value that is missing on either side has no effect.

The place is one fact, described by street, postcode, city, region and country together: for a person who has moved, all
of them differ, and neighbours share most of them. Colleagues share what belongs to their organisation (domain,
switchboard, address), so none of this shows which of them a record describes. They are considered only if the records
show an organisation. The confidence is the probability of the first explanation, given the others.

A record is compared with all records of a person: for each field the best match counts. So a typo in one record does no
harm if another record is correct, and a record without a birth date does not connect a father and his son. For e-mail
addresses the worst match counts, unless one is equal: otherwise a person with many addresses would be similar to
everyone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Final

from .distance import is_typo
from .fields import GIVEN, SURNAME, Preset
from .kinds import PLACES, SWAPPED, FieldKind, MatchLevel
from .preparation import NormalForm
from .source import Evidence

SAME: Final = 1e-5
"""Prior probability of the same person: one record in 100,000."""

HOUSEHOLD: Final = 1e-5
"""Prior probability of a member of the same household: one more record in 100,000."""

COLLEAGUES: Final = 0.02
"""Prior probability of a colleague, if the records show an organisation: 2,000 records in 100,000."""

NAMES: Final = 2


class FieldComparison:
    """How two values of one field are compared, and the probabilities of each level."""

    __slots__ = ("_preference", "compare", "is_place", "levels", "organisation_levels", "probabilities", "slot")

    def __init__(self, slot: int, kind: FieldKind, probabilities: list[tuple[float, float, float, float]]) -> None:
        self.slot = slot
        self.levels = kind.levels
        self.probabilities = probabilities
        self.is_place = kind.role == "place"
        self.organisation_levels = kind.organisation_levels
        self.compare = kind.compare
        worst = sorted(range(1, len(probabilities)), key=self._likelihood_ratio) if kind.worst_value_counts else []
        self._preference = [0, *worst] if worst else None

    def level(self, here: str, there: str) -> int:
        return 0 if here == there else self.compare(here, there)

    def best_level(self, here: str, there: Sequence[NormalForm]) -> int | None:
        """Return the level that counts among all values of the other side, or None if it has no value."""
        found = [self.level(here, form[self.slot]) for form in there if form[self.slot]]
        if len(found) <= 1 or self._preference is None:
            return min(found, default=None)
        return min(found, key=self._preference.index)

    def rival_probability(self, level: int) -> float:
        """Return the probability of this level under the likeliest other explanation: strangers, or colleagues."""
        _, _, strangers, colleagues = self.probabilities[level]
        return max(strangers, colleagues) if level in self.organisation_levels and level else strangers

    def _likelihood_ratio(self, level: int) -> float:
        return self.probabilities[level][0] / self.rival_probability(level)


class Similarity:
    """Compares normal forms of one preset."""

    def __init__(self, preset: Preset) -> None:
        self._slots = preset.slots
        self._given, self._surname = preset.slots[GIVEN].kind, preset.slots[SURNAME].kind
        self._compared = tuple(
            FieldComparison(n, slot.kind, [(*level[1:4], level.among_colleagues) for level in slot.kind.levels])
            for n, slot in list(enumerate(preset.slots))[NAMES:]
            if slot.kind.role in ("person", "place")
        )
        self._unpacked = [(one, one.slot, one.compare, one.probabilities, one.is_place) for one in self._compared]

    def confidence(self, here: NormalForm, there: Sequence[NormalForm]) -> float:
        """Return the probability that record `here` belongs to the person with the records `there`."""
        same = household = strangers = colleagues = dwelling = town = elsewhere = 1.0
        same_organisation = False
        for level in self._names(here, there):
            same *= level.same
            household *= level.household
            strangers *= level.strangers
            colleagues *= level.strangers
        alone = there[0] if len(there) == 1 else None
        for one, slot, compare, probabilities, is_place in self._unpacked:
            mine = here[slot]
            if not mine:
                continue
            if alone is None:
                best = one.best_level(mine, there)
                if best is None:
                    continue
            elif theirs := alone[slot]:
                best = 0 if mine == theirs else compare(mine, theirs)
            else:
                continue
            a, b, c, d = probabilities[best]
            if is_place:
                dwelling *= a
                town *= b
                elsewhere *= c
            else:
                same *= a
                household *= b
                strangers *= c
                colleagues *= d
                same_organisation = same_organisation or best in one.organisation_levels
        (a, b, c), (d, e, f), (g, h, i), (j, k, m) = PLACES
        same *= (a * dwelling + b * town + c * elsewhere) * SAME
        household *= (d * dwelling + e * town + f * elsewhere) * HOUSEHOLD
        strangers *= g * dwelling + h * town + i * elsewhere
        if same_organisation:
            strangers += colleagues * (j * dwelling + k * town + m * elsewhere) * COLLEAGUES
        return same / (same + household + strangers)

    def _names(self, here: NormalForm, there: Sequence[NormalForm]) -> list[MatchLevel]:
        """Return the levels of the record with the best matching name.

        Parts of two different names are not combined.
        """
        if len(there) == 1:
            return self._name(here, there[0])
        return max((self._name(here, form) for form in there), key=_likelihood_ratio)

    def _name(self, here: NormalForm, there: NormalForm) -> list[MatchLevel]:
        given, surname, their_given, their_surname = here[GIVEN], here[SURNAME], there[GIVEN], there[SURNAME]
        if given == their_given and surname == their_surname and given and surname:
            return [self._given.levels[0], self._surname.levels[0]]
        if (given == their_surname or surname == their_given) and _are_swapped(
            (given, surname), (their_given, their_surname)
        ):
            return [SWAPPED]
        found = []
        if given and their_given:
            kind = self._given
            found.append(kind.levels[0 if given == their_given else kind.compare(given, their_given)])
        if surname and their_surname:
            kind = self._surname
            found.append(kind.levels[0 if surname == their_surname else kind.compare(surname, their_surname)])
        return found

    def evidence(self, here: NormalForm, there: Sequence[NormalForm]) -> tuple[Evidence, ...]:
        """Return the evidence per field, with its weight in bits against strangers (or colleagues)."""
        named = max(there, key=lambda form: _likelihood_ratio(self._name(here, form)))
        levels = self._name(here, named)
        slots = [n for n in (GIVEN, SURNAME) if here[n] and named[n]]
        found = [
            self._evidence(n, level, level.same / level.strangers, here[n], named[n])
            for n, level in zip(slots, levels * len(slots) if SWAPPED in levels else levels, strict=False)
        ]
        for one in self._compared:
            n = one.slot
            best = one.best_level(here[n], there) if here[n] else None
            if best is not None:
                level = one.levels[best]
                odds = _place_odds(level) if one.is_place else level.same / one.rival_probability(best)
                value = next(form[n] for form in there if form[n] and one.level(here[n], form[n]) == best)
                found.append(self._evidence(n, level, odds, here[n], value))
        return tuple(found)

    def _evidence(self, n: int, level: MatchLevel, odds: float, here: str, there: str) -> Evidence:
        return Evidence(self._slots[n].name, level.name, here, there, round(log2(odds), 1))


def _likelihood_ratio(levels: Sequence[MatchLevel]) -> float:
    worth = 1.0
    for level in levels:
        worth *= level.same / level.strangers
    return worth


def _place_odds(level: MatchLevel) -> float:
    same, _, strangers, _ = (a * level.same + b * level.household + c * level.strangers for a, b, c in PLACES)
    return same / strangers


def _are_swapped(here: tuple[str, str], there: tuple[str, str]) -> bool:
    """Return whether given name and surname are interchanged, with a typo in at most one of them."""
    if not (all(here) and all(there)) or here[0] == here[1]:
        return False
    crossed = ((here[0], there[1]), (here[1], there[0]))
    equal = [one == other for one, other in crossed]
    return all(equal) or (any(equal) and all(one == other or is_typo(one, other) for one, other in crossed))
