"""Compute how likely it is that two records, or two groups of records, belong to one person.

Four explanations compete: the same person, two members of one household, two colleagues, strangers. Each field makes
each of them more or less likely (see `kinds` and `model`). A value that is missing on either side has no effect.

The place is one fact, described by street, postcode, city, region and country together: for a person who has moved, all
of them differ, and neighbours share most of them. Colleagues share what belongs to their organisation (domain,
switchboard, address), so none of this shows which of them a record describes. They are considered only if the records
show an organisation. The confidence is the probability of the first explanation, given the others.

A high confidence is not enough for an automatic merge, because a wrong merge is worse than a question. The evidence of
the fields (`MatchLevel.evidence`) has to allow it, too.

The result depends on the two sides only, and not on their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log2
from typing import Final, NamedTuple

from .distance import OTHER_FORM, are_alike, given_name, is_typo
from .fields import GIVEN, SURNAME, Preset
from .kinds import NEVER, ONE_LETTER, PLACES, RENAMED, SWAPPED, SWAPPED_TWINS, FieldKind, MatchLevel
from .known_names import is_known
from .merge_evidence import ENOUGH, TWO_LINES, sum_of_evidence
from .model import DEFAULT_MODEL, Model
from .preparation import NormalForm
from .source import Evidence

COLLEAGUES: Final = 0.02
"""Prior probability of a colleague, if the records show an organisation: 2,000 records in 100,000."""

_AGREEING: Final = ("equal", "close", SWAPPED.name)
NAMES: Final = 2
CACHED_PAIRS: Final = 65_536


class Comparison(NamedTuple):
    """The result of comparing two records, or two groups of records."""

    confidence: float
    evidence: float
    other_key: bool
    """Whether both have a strong key of the same field, and these differ."""

    @property
    def may_merge(self) -> bool:
        return self.evidence >= ENOUGH

    @property
    def contradicts(self) -> bool:
        """Whether a name or the birth date differs, and nothing outweighs that."""
        return self.evidence == NEVER


class NameLevels(NamedTuple):
    """How two names compare: the levels of their parts, and the shares of strangers who agree to this degree."""

    levels: tuple[tuple[int, MatchLevel], ...]
    strangers: float
    other_given: bool = False
    """Whether the given names differ so much that they are not one misspelt name."""


class FieldComparison:
    """How two values of one field are compared, and the probabilities of each level."""

    def __init__(self, slot: int, kind: FieldKind, levels: Sequence[MatchLevel], *, is_strong: bool) -> None:
        self.slot = slot
        self.kind = kind.name
        self.levels = levels
        self.probabilities = [(*level[1:4], level.among_colleagues) for level in levels]
        self.evidence = [level.counted_evidence for level in levels]
        self.is_place = kind.role == "place"
        self.is_strong = is_strong
        self.organisation_levels = kind.organisation_levels
        self.compare = kind.compare

    def level(self, here: str, there: str) -> int:
        return 0 if here == there else self.compare(here, there)

    def rival_probability(self, level: int) -> float:
        """Return the probability of this level under the likeliest other explanation: strangers, or colleagues."""
        _, _, strangers, colleagues = self.probabilities[level]
        return max(strangers, colleagues) if level in self.organisation_levels and level else strangers


class Similarity:
    """Compares normal forms of one preset."""

    def __init__(self, preset: Preset, model: Model = DEFAULT_MODEL) -> None:
        self._slots = preset.slots
        self._model = model
        self._rules = [({preset.places[slot] for slot in rule.slots}, rule.confidence) for rule in preset.rules]
        learned = [learned_levels(slot.kind, model.levels.get(slot.name, {})) for slot in preset.slots]
        self._given, self._surname = learned[GIVEN], learned[SURNAME]
        self._compare_given, self._compare_surname = (preset.slots[n].kind.compare for n in (GIVEN, SURNAME))
        self._compared = tuple(
            FieldComparison(n, slot.kind, learned[n], is_strong=slot.strong)
            for n, slot in list(enumerate(preset.slots))[NAMES:]
            if slot.kind.role in ("person", "place")
        )
        self._compare_cached = lru_cache(maxsize=CACHED_PAIRS)(self._compare_pair)

    def compare(self, here: NormalForm, there: NormalForm) -> Comparison:
        """Compare two records."""
        return self._compare_cached(here, there) if here <= there else self._compare_cached(there, here)

    def compare_groups(self, here: Sequence[NormalForm], there: Sequence[NormalForm]) -> Comparison:
        """Compare two groups of records: for each field the best match counts."""
        if len(here) == len(there) == 1:
            return self.compare(here[0], there[0])
        found: list[tuple[FieldComparison, int]] = []
        for one in self._compared:
            n = one.slot
            ours, theirs = ({form[n] for form in forms if form[n]} for forms in (here, there))
            if ours and theirs:
                found.append((one, min(one.level(mine, other) for mine in ours for other in theirs)))
        all_names = [self._names(one, other) for one in here for other in there]
        may_hide = sum(_place_evidence(found)) >= TWO_LINES
        all_names = _without_twins(all_names if may_hide else _without_hiding(all_names), may_hide=may_hide)
        names = max(all_names, key=_name_odds)
        if self._given[2] in dict(names.levels).values():  # J. is a form of both John and Jane, who are two people
            names = next((one for one in all_names if self._given[-1] in dict(one.levels).values()), names)
        return self._judge(names, found)

    def confidence(self, here: NormalForm, there: NormalForm) -> float:
        """Return the probability that two records are of one person."""
        return self.compare(here, there).confidence

    def _compare_pair(self, here: NormalForm, there: NormalForm) -> Comparison:
        found = [
            (one, 0 if mine == other else one.compare(mine, other))
            for one in self._compared
            if (mine := here[one.slot]) and (other := there[one.slot])
        ]
        return self._judge(self._names(here, there), found)

    def _judge(self, names: NameLevels, found: Sequence[tuple[FieldComparison, int]]) -> Comparison:
        """Weigh the explanations, and add up the evidence."""
        confidence = self._weigh(names, found)
        evidence = sum_of_evidence(
            [level.counted_evidence for _, level in names.levels],
            [one.evidence[n] for one, n in found if not one.is_place],
            _place_evidence(found),
            other_given=names.other_given,
            same_key=any(one.is_strong and n == 0 for one, n in found),
            full=len(names.levels) == NAMES or (bool(names.levels) and names.levels[0][1].name == SWAPPED.name),
        )
        other_key = any(one.is_strong and n > 0 for one, n in found)
        if self._rules and not other_key and evidence != NEVER:
            equal = {slot for slot, level in names.levels if level.name == self._given[0].name}
            equal |= {one.slot for one, n in found if n == 0}
            for slots, at_least in self._rules:
                if slots <= equal:
                    confidence, evidence = max(confidence, at_least), max(evidence, ENOUGH)
        return Comparison(confidence, evidence, other_key)

    def _weigh(self, names: NameLevels, found: Sequence[tuple[FieldComparison, int]]) -> float:
        """Return the probability of the same person, given the other explanations."""
        same = household = dwelling = town = elsewhere = 1.0
        same_organisation = False
        for _, level in names.levels:
            same *= level.same
            household *= level.household
        strangers = colleagues = names.strangers
        for one, n in found:
            a, b, c, d = one.probabilities[n]
            if one.is_place:
                dwelling *= a
                town *= b
                elsewhere *= c
            else:
                same *= a
                household *= b
                strangers *= c
                colleagues *= d
                same_organisation = same_organisation or n in one.organisation_levels
        (a, b, c), (d, e, f), (g, h, i), (j, k, m) = PLACES
        same *= (a * dwelling + b * town + c * elsewhere) * self._model.same
        household *= (d * dwelling + e * town + f * elsewhere) * self._model.household
        strangers *= g * dwelling + h * town + i * elsewhere
        if same_organisation:
            strangers += colleagues * (j * dwelling + k * town + m * elsewhere) * COLLEAGUES
        return same / (same + household + strangers)

    def _names(self, here: NormalForm, there: NormalForm) -> NameLevels:
        given, surname, their_given, their_surname = here[GIVEN], here[SURNAME], there[GIVEN], there[SURNAME]
        if (given == their_surname or surname == their_given) and _are_swapped(
            (given, surname), (their_given, their_surname)
        ):
            level = SWAPPED_TWINS if _may_be_twins((given, surname), (their_given, their_surname)) else SWAPPED
            return NameLevels(((GIVEN, level),), SWAPPED.strangers)
        found = []
        strangers = 1.0
        other_given = False
        if given and their_given:
            if given == their_given:
                found.append((GIVEN, self._given[0]))
                strangers *= self._model.given_name_share(given)
            else:
                level = self._given[self._compare_given(given, their_given)]
                found.append((GIVEN, level))
                strangers *= level.strangers
                other_given = level.evidence == NEVER and not are_alike(given, their_given)
        if surname and their_surname:
            if surname == their_surname:
                found.append((SURNAME, self._surname[0]))
                strangers *= self._model.surname_share(surname)
            else:
                level = self._surname[self._compare_surname(surname, their_surname)]
                found.append((SURNAME, level))
                strangers *= level.strangers
        return NameLevels(tuple(found), strangers, other_given)

    def evidence(self, here: NormalForm, there: NormalForm) -> tuple[Evidence, ...]:
        """Return the evidence per field, with its weight in bits against strangers (or colleagues)."""
        names = self._names(here, there)
        found = []
        for slot, level in names.levels:
            slots = (GIVEN, SURNAME) if level.name == SWAPPED.name else (slot,)
            found += [
                self._evidence(n, level, level.same / self._strangers(n, level, here[n]), here[n], there[n])
                for n in slots
            ]
        for one in self._compared:
            n = one.slot
            if here[n] and there[n]:
                best = one.level(here[n], there[n])
                level = one.levels[best]
                odds = _place_odds(level) if one.is_place else level.same / one.rival_probability(best)
                found.append(self._evidence(n, level, odds, here[n], there[n]))
        return tuple(found)

    def _strangers(self, slot: int, level: MatchLevel, name: str) -> float:
        if level.name == self._given[0].name:
            return self._model.given_name_share(name) if slot == GIVEN else self._model.surname_share(name)
        return level.strangers

    def _evidence(self, n: int, level: MatchLevel, odds: float, here: str, there: str) -> Evidence:
        return Evidence(self._slots[n].name, level.name, here, there, round(log2(odds), 1))


def _place_evidence(found: Sequence[tuple[FieldComparison, int]]) -> list[float]:
    """Return the evidence of the place.

    With the same postcode, another name of the town is the same town. A similar street in another town is another one.
    """
    places = [(one, n) for one, n in found if one.is_place]
    if any(one.kind == "postcode" and n == 0 for one, n in places):
        return [max(one.evidence[n], 0.0) for one, n in places]
    is_elsewhere = any(one.evidence[n] < 0 for one, n in places)
    return [one.evidence[n] for one, n in places if not is_elsewhere or n == 0 or one.evidence[n] < 0]


def learned_levels(kind: FieldKind, learned: dict[str, tuple[float, float]]) -> tuple[MatchLevel, ...]:
    """Return the levels of a kind with the probabilities that the model has learned."""
    return tuple(
        level._replace(
            same=learned[level.name][0],
            strangers=learned[level.name][1],
            colleagues=level.among_colleagues,
            evidence=level.counted_evidence,
        )
        if level.name in learned
        else level
        for level in kind.levels
    )


def _without_hiding(several: list[NameLevels]) -> list[NameLevels]:
    """Return only the comparisons of different given names with the same surname, if no pair of given names agrees.

    A record without a given name agrees with every member of the household. It must not hide that two of them differ.
    """
    if any(slot == GIVEN and level.evidence != NEVER for one in several for slot, level in one.levels):
        return several
    return [one for one in several if one.other_given and one.levels[-1][1].evidence != RENAMED] or several


def _without_twins(several: list[NameLevels], *, may_hide: bool) -> list[NameLevels]:
    """Return the comparisons without those of given names that are one letter apart, if a pair of given names agrees.

    Otherwise return only these: an initial and a missing given name agree with both twins, and must not hide that they
    differ, unless it is allowed.
    """
    twins = [one for one in several if any(level.evidence == ONE_LETTER for _, level in one.levels)]
    others = [one for one in several if one not in twins] if twins else several
    given = [dict(one.levels).get(GIVEN) for one in others]
    if any(level.name in _AGREEING if level else may_hide for level in given):
        return others
    return twins or several


def _name_odds(names: NameLevels) -> float:
    odds = 1.0
    for _, level in names.levels:
        odds *= level.same
    return odds / names.strangers


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


def _may_be_twins(here: tuple[str, str], there: tuple[str, str]) -> bool:
    """Return whether two interchanged names, which are equal but for a typo, may be those of twins.

    If the equal part is a known given name, the typo is in the surname. If one spelling of the other part is a known
    given name, the other one is a typo. It is not clear if both are known, or none.
    """
    crossed = ((here[0], there[1]), (here[1], there[0]))
    for one, other in crossed:
        if one != other and given_name(one, other) > OTHER_FORM:
            equal = next(same for same, also in crossed if same == also)
            if is_known(one) == is_known(other):
                return is_known(one) or not is_known(equal)
            return one[0] != other[0] and not is_known(equal)
    return False


def describe(evidence: tuple[Evidence, ...], confidence: float) -> str:
    """Return, for example, `given_name, surname, city equal; street different: 0.97`."""
    levels: dict[str, list[str]] = {}
    for one in evidence:
        levels.setdefault(one.level, []).append(one.field)
    parts = [f"{', '.join(names)} {level}" for level, names in levels.items()]
    return f"{'; '.join(parts)}: {confidence:.2f}"
