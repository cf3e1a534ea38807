"""How sure it is that two forms are of one person.

Three explanations compete: the same person, two members of one household, strangers. Each field makes each of them
more or less likely (`kinds`); what is missing on either side says nothing. Where people live is one fact, told by
street, postcode, city, region and country together: who has moved has another of each, and neighbours share most.
The confidence is the probability of the first explanation, given the others.
"""

from __future__ import annotations

from math import log2
from typing import Final

from .fields import GIVEN, SURNAME, Preset
from .kinds import PLACES, SWAPPED, Level
from .prepare import Form
from .source import Evidence

SAME: Final = 1e-5
"""The chance of the first explanation before anything is compared: one in 100,000 records is of the person."""

HOUSEHOLD: Final = 1e-5
"""... and one more is of somebody of the same household."""

NAMES: Final = 2


class Likeness:
    """Compares forms of one preset."""

    def __init__(self, preset: Preset) -> None:
        self._slots = preset.slots
        self._given, self._surname = preset.slots[GIVEN].kind, preset.slots[SURNAME].kind
        numbered = list(enumerate(preset.slots))[NAMES:]
        self._facts = tuple(
            (n, slot.kind.levels, slot.kind.compare) for n, slot in numbered if slot.kind.role == "person"
        )
        self._places = tuple(
            (n, slot.kind.levels, slot.kind.compare) for n, slot in numbered if slot.kind.role == "place"
        )

    def confidence(self, here: Form, there: Form) -> float:
        """From 0 to 1."""
        same, household, strangers = self._names(here, there)
        for n, levels, compare in self._facts:
            mine, theirs = here[n], there[n]
            if mine and theirs:
                level = levels[0 if mine == theirs else compare(mine, theirs)]
                same *= level.same
                household *= level.household
                strangers *= level.strangers
        dwelling = town = elsewhere = 1.0
        for n, levels, compare in self._places:
            mine, theirs = here[n], there[n]
            if mine and theirs:
                level = levels[0 if mine == theirs else compare(mine, theirs)]
                dwelling *= level.same
                town *= level.household
                elsewhere *= level.strangers
        one, family, other = (a * dwelling + b * town + c * elsewhere for a, b, c in PLACES)
        same *= one * SAME
        return same / (same + household * family * HOUSEHOLD + strangers * other)

    def _names(self, here: Form, there: Form) -> tuple[float, float, float]:
        first, last = self._name_levels(here, there)
        if first is SWAPPED:
            return first.same, first.household, first.strangers
        same = household = strangers = 1.0
        for level in (first, last):
            if level is not None:
                same *= level.same
                household *= level.household
                strangers *= level.strangers
        return same, household, strangers

    def _name_levels(self, here: Form, there: Form) -> tuple[Level | None, Level | None]:
        given, surname, their_given, their_surname = here[GIVEN], here[SURNAME], there[GIVEN], there[SURNAME]
        if given and surname and given == their_surname and surname == their_given and given != surname:
            return SWAPPED, SWAPPED
        first = last = None
        if given and their_given:
            kind = self._given
            first = kind.levels[0 if given == their_given else kind.compare(given, their_given)]
        if surname and their_surname:
            kind = self._surname
            last = kind.levels[0 if surname == their_surname else kind.compare(surname, their_surname)]
        return first, last

    def evidence(self, here: Form, there: Form) -> tuple[Evidence, ...]:
        """Field by field, with what each is worth against strangers, in bits."""
        told = []
        for n, level in enumerate(self._name_levels(here, there)):
            if level is not None:
                told.append(self._told(n, level, level.same / level.strangers, here, there))
        for n, levels, compare in self._facts + self._places:
            if here[n] and there[n]:
                level = levels[0 if here[n] == there[n] else compare(here[n], there[n])]
                chances = PLACES if self._slots[n].kind.role == "place" else ((1.0, 0.0, 0.0), (), (0.0, 0.0, 1.0))
                same, strangers = (sum(a * b for a, b in zip(chances[x], level[1:], strict=True)) for x in (0, 2))
                told.append(self._told(n, level, same / strangers, here, there))
        return tuple(told)

    def _told(self, n: int, level: Level, odds: float, here: Form, there: Form) -> Evidence:
        return Evidence(self._slots[n].name, level.name, here[n], there[n], round(log2(odds), 1))
