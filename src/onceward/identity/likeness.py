"""How sure it is that a record is of a person.

Three explanations compete: the same person, two members of one household, strangers. Each field makes each of them
more or less likely (`kinds`); what is missing on either side says nothing. Where people live is one fact, told by
street, postcode, city, region and country together: who has moved has another of each, and neighbours share most.
The confidence is the probability of the first explanation, given the others.

A person is known by all of their records: of each field the value that fits best counts. So a slip in one record does
no harm where another has it right, and a record without a birth date is no bridge between a father and a son.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Final

from .closeness import slips
from .fields import GIVEN, SURNAME, Preset
from .kinds import PLACES, SWAPPED, Level
from .prepare import Form
from .source import Evidence

SAME: Final = 1e-5
"""The chance of the first explanation before anything is compared: one in 100,000 records is of the person."""

HOUSEHOLD: Final = 1e-5
"""... and one more is of somebody of the same household."""

NAMES: Final = 2
Compared = list[tuple[int, Level, str]]
"""Slot, level, and the value there that fits best."""


class Likeness:
    """Compares forms of one preset."""

    def __init__(self, preset: Preset) -> None:
        self._slots = preset.slots
        self._given, self._surname = preset.slots[GIVEN].kind, preset.slots[SURNAME].kind
        numbered = list(enumerate(preset.slots))[NAMES:]
        compared = [(n, slot.kind.levels, slot.kind.compare, slot.kind.role == "place") for n, slot in numbered]
        self._compared = tuple(one for one in compared if self._slots[one[0]].kind.role in ("person", "place"))

    def confidence(self, here: Form, there: Sequence[Form]) -> float:
        """From 0 to 1: that the first is of the person who has the others."""
        same = household = strangers = dwelling = town = elsewhere = 1.0
        for _, a, b, c in self._names(here, there):
            same *= a
            household *= b
            strangers *= c
        for n, levels, compare, is_place in self._compared:
            mine = here[n]
            if not mine:
                continue
            best = different = len(levels)
            for form in there:
                theirs = form[n]
                if theirs:
                    level = 0 if mine == theirs else compare(mine, theirs)
                    best = min(best, level)
            if best == different:
                continue
            _, a, b, c = levels[best]
            if is_place:
                dwelling *= a
                town *= b
                elsewhere *= c
            else:
                same *= a
                household *= b
                strangers *= c
        (a, b, c), (d, e, f), (g, h, i) = PLACES
        same *= (a * dwelling + b * town + c * elsewhere) * SAME
        household *= (d * dwelling + e * town + f * elsewhere) * HOUSEHOLD
        strangers *= g * dwelling + h * town + i * elsewhere
        return same / (same + household + strangers)

    def _names(self, here: Form, there: Sequence[Form]) -> list[Level]:
        """Of the record there whose name fits best: parts of two names are no name."""
        if len(there) == 1:
            return self._name(here, there[0])
        return max((self._name(here, form) for form in there), key=_worth)

    def _name(self, here: Form, there: Form) -> list[Level]:
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

    def evidence(self, here: Form, there: Sequence[Form]) -> tuple[Evidence, ...]:
        """Field by field, with what each is worth against strangers, in bits."""
        named = max(there, key=lambda form: _worth(self._name(here, form)))
        levels = self._name(here, named)
        slots = [n for n in (GIVEN, SURNAME) if here[n] and named[n]]
        told = [
            self._told(n, level, level.same / level.strangers, here[n], named[n])
            for n, level in zip(slots, levels * len(slots) if SWAPPED in levels else levels, strict=False)
        ]
        for n, kinds, compare, is_place in self._compared:
            filled = [form[n] for form in there if form[n]]
            if here[n] and filled:
                best, value = min((0 if here[n] == one else compare(here[n], one), one) for one in filled)
                level = kinds[best]
                odds = _of_place(level) if is_place else level.same / level.strangers
                told.append(self._told(n, level, odds, here[n], value))
        return tuple(told)

    def _told(self, n: int, level: Level, odds: float, here: str, there: str) -> Evidence:
        return Evidence(self._slots[n].name, level.name, here, there, round(log2(odds), 1))


def _worth(levels: Sequence[Level]) -> float:
    worth = 1.0
    for level in levels:
        worth *= level.same / level.strangers
    return worth


def _of_place(level: Level) -> float:
    same, _, strangers = (a * level.same + b * level.household + c * level.strangers for a, b, c in PLACES)
    return same / strangers


def _are_swapped(here: tuple[str, str], there: tuple[str, str]) -> bool:
    """With a slip in one of them at most."""
    if not (all(here) and all(there)) or here[0] == here[1]:
        return False
    crossed = ((here[0], there[1]), (here[1], there[0]))
    equal = [one == other for one, other in crossed]
    return all(equal) or (any(equal) and all(one == other or slips(one, other) for one, other in crossed))
