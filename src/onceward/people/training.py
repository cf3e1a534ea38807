"""Estimate a model from the stored records, without labels, by expectation maximisation.

How often strangers agree is counted on random pairs. How often records of one person agree is estimated on pairs that
share a blocking key: each pair gets the probability that it is one person, these weights give new estimates, and so on
until they settle. Answers of operators count as known pairs. Estimates from few pairs stay near the default ones.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from .fields import GIVEN, SURNAME, FieldSlot, Preset
from .kinds import MatchLevel
from .model import Model
from .preparation import NormalForm, decode_form
from .tables import Tables

MAX_RECORDS: Final = 200_000
MAX_PAIRS: Final = 200_000
RANDOM_PAIRS: Final = 200_000
MAX_ROUNDS: Final = 40
DEFAULTS_WEIGHT: Final = 50.0
"""How many pairs of one person the default estimates count for."""

DEFAULTS_SHARE: Final = 0.2
"""And at least this share of the pairs."""

STRANGERS_WEIGHT: Final = 2_000.0
ANSWER_WEIGHT: Final = 5.0
"""How much an operator's answer counts, compared with a pair of which no one knows."""

MIN_NAME_COUNT: Final = 3
SMALLEST: Final = 1e-7
SETTLED: Final = 1e-5

FORMS_BY_NUMBER: Final = "SELECT number, unit, form FROM {t}onceward_contributions ORDER BY number LIMIT ?"
PAIRS: Final = """
SELECT a.number, b.number FROM {t}onceward_blocking AS a
JOIN {t}onceward_blocking AS b ON b.block = a.block AND b.number > a.number ORDER BY a.block LIMIT ?
"""
"""Blocks are hashes, so the first ones are a random sample."""
ANSWERS: Final = "SELECT one, other, answer FROM {t}onceward_reviews WHERE answer <> ''"

Key = tuple[str, str]
"""A field and a level."""

Levels = tuple[Key, ...]


def train(tables: Tables, preset: Preset, seed: int = 1) -> Model:
    """Return a model estimated from the stored records."""
    records: dict[int, NormalForm] = {}
    units: dict[str, int] = {}
    for number, unit, form in tables.run(FORMS_BY_NUMBER, MAX_RECORDS):
        records[number] = decode_form(form)
        units.setdefault(unit, number)
    if len(records) < DEFAULTS_WEIGHT:
        return Model()
    dice = random.Random(seed)  # noqa: S311 (a sample)
    slots = [(n, slot) for n, slot in enumerate(preset.slots) if slot.kind.levels]

    def levels(one: int, other: int) -> Levels:
        return _levels(slots, records[one], records[other])

    numbers = list(records)
    strangers = Counter[Key]()
    for _ in range(min(RANDOM_PAIRS, len(numbers) ** 2 // 4)):
        one, other = dice.sample(numbers, 2)
        strangers.update(levels(one, other))
    known = [
        (levels(units[one], units[other]), answer == "same")
        for one, other, answer in tables.run(ANSWERS)
        if one in units and other in units
    ]
    pairs = {(one, other) for one, other in tables.run(PAIRS, MAX_PAIRS) if one in records and other in records}
    patterns = Counter(levels(one, other) for one, other in sorted(pairs))
    return _estimate(preset, records, strangers, patterns, known)


def _levels(slots: Iterable[tuple[int, FieldSlot]], here: NormalForm, there: NormalForm) -> Levels:
    """Compare two records field by field."""
    found = []
    for n, slot in slots:
        mine, other = here[n], there[n]
        if mine and other:
            level = 0 if mine == other else slot.kind.compare(mine, other)
            found.append((slot.name, slot.kind.levels[level].name))
    return tuple(found)


def _estimate(
    preset: Preset,
    records: dict[int, NormalForm],
    random_levels: Counter[Key],
    patterns: Counter[Levels],
    known: Sequence[tuple[Levels, bool]],
) -> Model:
    defaults = {(slot.name, level.name): level for slot in preset.slots for level in slot.kind.levels}
    totals = Counter[str]()
    for (field, _), count in random_levels.items():
        totals[field] += count
    strangers = {
        key: (random_levels[key] + STRANGERS_WEIGHT * level.strangers) / (totals[key[0]] + STRANGERS_WEIGHT)
        for key, level in defaults.items()
    }
    places = {slot.name for slot in preset.slots if slot.kind.role == "place"}
    chances = Chances(
        {key: level.same for key, level in defaults.items()},
        {key: level.same if key[0] in places else level.household for key, level in defaults.items()},
        dict(strangers),  # strangers that share a blocking key agree more often than others
        (0.3, 0.2, 0.5),
    )
    for _ in range(MAX_ROUNDS):
        before = chances.shares
        chances = _maximise(patterns, chances, known, defaults)
        if all(abs(one - other) < SETTLED for one, other in zip(before, chances.shares, strict=True)):
            break
    same = chances.same
    count = len(records)
    per_pair = 2 * sum(patterns.values()) / (count * (count - 1))
    levels: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for (field, level), chance in same.items():
        levels[field][level] = (max(chance, SMALLEST), max(strangers[field, level], SMALLEST))
    given, surnames = (_shares(form[n] for form in records.values() if form[n]) for n in (GIVEN, SURNAME))
    return Model(
        same=min(max(per_pair * chances.shares[0], SMALLEST), 0.01),
        household=min(max(per_pair * chances.shares[1], SMALLEST), 0.01),
        levels=dict(levels),
        given_names=given,
        surnames=surnames,
        other_given_name=max(2 / count, 1e-5),
        other_surname=max(2 / count, 1e-5),
        records=count,
        answers=len(known),
    )


class Chances(NamedTuple):
    """How often each level occurs if two records are of one person, of a household, or of others; and their shares.

    Those of a household are not estimated: without labels, nothing tells them from those of one person.
    """

    same: Mapping[Key, float]
    household: Mapping[Key, float]
    others: Mapping[Key, float]
    shares: tuple[float, float, float]

    def weights(self, pattern: Levels) -> tuple[float, float, float]:
        """Return the probability of each explanation of this pattern."""
        one, two, three = self.shares
        for key in pattern:
            one *= max(self.same[key], SMALLEST)
            two *= max(self.household[key], SMALLEST)
            three *= max(self.others[key], SMALLEST)
        total = one + two + three
        return (one / total, two / total, three / total) if total else (0.0, 0.0, 1.0)


def _maximise(
    patterns: Counter[Levels],
    chances: Chances,
    known: Sequence[tuple[Levels, bool]],
    defaults: Mapping[Key, MatchLevel],
) -> Chances:
    """Return the estimates that result from the probabilities of the explanations."""
    same: dict[Key, float] = defaultdict(float)
    others: dict[Key, float] = defaultdict(float)
    shares = [1e-6] * 3
    weighted = [(pattern, float(count), chances.weights(pattern)) for pattern, count in patterns.items()]
    weighted += [
        (pattern, ANSWER_WEIGHT, (1.0, 0.0, 0.0) if is_same else (0.0, 0.0, 1.0)) for pattern, is_same in known
    ]
    for pattern, count, weights in weighted:
        shares = [share + count * weight for share, weight in zip(shares, weights, strict=True)]
        for key in pattern:
            same[key] += count * weights[0]
            others[key] += count * weights[2]
    total = sum(shares)
    prior = max(DEFAULTS_WEIGHT, DEFAULTS_SHARE * shares[0])
    return Chances(
        _smoothed(same, {key: level.same for key, level in defaults.items()}, prior),
        chances.household,
        _smoothed(others, {key: level.strangers for key, level in defaults.items()}, DEFAULTS_WEIGHT),
        (shares[0] / total, shares[1] / total, shares[2] / total),
    )


def _smoothed(counts: Mapping[Key, float], defaults: Mapping[Key, float], weight: float) -> dict[Key, float]:
    """Return the shares of the levels of each field. The defaults count as `weight` further pairs."""
    sums: dict[str, float] = defaultdict(float)
    for (field, _), count in counts.items():
        sums[field] += count
    return {
        key: (counts.get(key, 0.0) + weight * default) / (sums[key[0]] + weight) for key, default in defaults.items()
    }


def _shares(names: Iterable[str]) -> dict[str, float]:
    """Return the share of each name that is not rare."""
    counts = Counter(names)
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items() if count >= MIN_NAME_COUNT}
