"""How sure it is that a record is of a person.

Four explanations compete: the same person, two members of one household, two colleagues, strangers. Each field makes
each of them more or less likely (`kinds`); what is missing on either side says nothing. Where people live is one fact,
told by street, postcode, city, region and country together: who has moved has another of each, and neighbours share
most. Colleagues share what their organisation has (domain, switchboard, address), so that all of this tells nothing of
whose a record is; they are thought of only where an organisation shows. The confidence is the probability of the first
explanation, given the others.

A person is known by all of their records: of each field the value that fits best counts. So a slip in one record does
no harm where another has it right, and a record without a birth date is no bridge between a father and a son. Of
addresses the one that fits worst counts, unless one is equal: else those who were merged once would be like everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Final

from .distance import slips
from .fields import GIVEN, SURNAME, Preset
from .kinds import PLACES, SWAPPED, FieldKind, MatchLevel
from .prepare import Form
from .source import Evidence

SAME: Final = 1e-5
"""The chance of the first explanation before anything is compared: one in 100,000 records is of the person."""

HOUSEHOLD: Final = 1e-5
"""... and one more is of somebody of the same household."""

COLLEAGUES: Final = 0.02
"""... and 2,000 are of the same organisation, where one shows."""

NAMES: Final = 2


class Compared:
    """One field: how two values of it meet, and the chances of each level."""

    __slots__ = ("_worst_first", "chances", "compare", "is_place", "levels", "organised", "slot")

    def __init__(self, slot: int, kind: FieldKind, chances: list[tuple[float, float, float, float]]) -> None:
        self.slot = slot
        self.levels = kind.levels
        self.chances = chances
        self.is_place = kind.role == "place"
        self.organised = kind.organised
        self.compare = kind.compare
        worst = sorted(range(1, len(chances)), key=self._worth) if kind.telling_apart else []
        self._worst_first = [0, *worst] if worst else None

    def level(self, here: str, there: str) -> int:
        return 0 if here == there else self.compare(here, there)

    def met(self, here: str, there: Sequence[Form]) -> int | None:
        """The level that counts of all values there; None if there is none."""
        found = [self.level(here, form[self.slot]) for form in there if form[self.slot]]
        if len(found) <= 1 or self._worst_first is None:
            return min(found, default=None)
        return min(found, key=self._worst_first.index)

    def rival(self, level: int) -> float:
        """The chance of the likeliest others with whom this agrees: where it shows an organisation, colleagues."""
        _, _, strangers, colleagues = self.chances[level]
        return max(strangers, colleagues) if level in self.organised and level else strangers

    def _worth(self, level: int) -> float:
        return self.chances[level][0] / self.rival(level)


class Similarity:
    """Compares forms of one preset."""

    def __init__(self, preset: Preset) -> None:
        self._slots = preset.slots
        self._given, self._surname = preset.slots[GIVEN].kind, preset.slots[SURNAME].kind
        self._compared = tuple(
            Compared(n, slot.kind, [(*level[1:4], level.among_colleagues) for level in slot.kind.levels])
            for n, slot in list(enumerate(preset.slots))[NAMES:]
            if slot.kind.role in ("person", "place")
        )
        self._unpacked = [(one, one.slot, one.compare, one.chances, one.is_place) for one in self._compared]

    def confidence(self, here: Form, there: Sequence[Form]) -> float:
        """From 0 to 1: that the first is of the person who has the others."""
        same = household = strangers = colleagues = dwelling = town = elsewhere = 1.0
        organised = False
        for level in self._names(here, there):
            same *= level.same
            household *= level.household
            strangers *= level.strangers
            colleagues *= level.strangers
        alone = there[0] if len(there) == 1 else None
        for one, slot, compare, chances, is_place in self._unpacked:
            mine = here[slot]
            if not mine:
                continue
            if alone is None:
                best = one.met(mine, there)
                if best is None:
                    continue
            elif theirs := alone[slot]:
                best = 0 if mine == theirs else compare(mine, theirs)
            else:
                continue
            a, b, c, d = chances[best]
            if is_place:
                dwelling *= a
                town *= b
                elsewhere *= c
            else:
                same *= a
                household *= b
                strangers *= c
                colleagues *= d
                organised = organised or best in one.organised
        (a, b, c), (d, e, f), (g, h, i), (j, k, m) = PLACES
        same *= (a * dwelling + b * town + c * elsewhere) * SAME
        household *= (d * dwelling + e * town + f * elsewhere) * HOUSEHOLD
        strangers *= g * dwelling + h * town + i * elsewhere
        if organised:
            strangers += colleagues * (j * dwelling + k * town + m * elsewhere) * COLLEAGUES
        return same / (same + household + strangers)

    def _names(self, here: Form, there: Sequence[Form]) -> list[MatchLevel]:
        """Of the record there whose name fits best: parts of two names are no name."""
        if len(there) == 1:
            return self._name(here, there[0])
        return max((self._name(here, form) for form in there), key=_worth)

    def _name(self, here: Form, there: Form) -> list[MatchLevel]:
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
        """Field by field, with what each is worth against strangers (or colleagues, where it is theirs), in bits."""
        named = max(there, key=lambda form: _worth(self._name(here, form)))
        levels = self._name(here, named)
        slots = [n for n in (GIVEN, SURNAME) if here[n] and named[n]]
        told = [
            self._told(n, level, level.same / level.strangers, here[n], named[n])
            for n, level in zip(slots, levels * len(slots) if SWAPPED in levels else levels, strict=False)
        ]
        for one in self._compared:
            n = one.slot
            best = one.met(here[n], there) if here[n] else None
            if best is not None:
                level = one.levels[best]
                odds = _of_place(level) if one.is_place else level.same / one.rival(best)
                value = next(form[n] for form in there if form[n] and one.level(here[n], form[n]) == best)
                told.append(self._told(n, level, odds, here[n], value))
        return tuple(told)

    def _told(self, n: int, level: MatchLevel, odds: float, here: str, there: str) -> Evidence:
        return Evidence(self._slots[n].name, level.name, here, there, round(log2(odds), 1))


def _worth(levels: Sequence[MatchLevel]) -> float:
    worth = 1.0
    for level in levels:
        worth *= level.same / level.strangers
    return worth


def _of_place(level: MatchLevel) -> float:
    same, _, strangers, _ = (a * level.same + b * level.household + c * level.strangers for a, b, c in PLACES)
    return same / strangers


def _are_swapped(here: tuple[str, str], there: tuple[str, str]) -> bool:
    """With a slip in one of them at most."""
    if not (all(here) and all(there)) or here[0] == here[1]:
        return False
    crossed = ((here[0], there[1]), (here[1], there[0]))
    equal = [one == other for one, other in crossed]
    return all(equal) or (any(equal) and all(one == other or slips(one, other) for one, other in crossed))
