"""Divide similar units into people.

A unit is a set of records that a strong key or an operator keeps together. The result depends on the units and on how
they compare, and not on the order in which they arrived:

1. A link between two units competes with other links of either of them, if these lead to a unit that cannot be the same
   person. For example, a record without a birth date is similar to a father and to his son of the same name. What fits
   two people belongs to neither: both become questions.
2. The remaining links join their units, the most certain first, unless two units in the result cannot be one person.
3. A unit of untrusted sources joins at most one person, and never connects two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

Pair = tuple[str, str]
AreDistinct = Callable[[Sequence[str], Sequence[str]], bool]
"""Returns whether two groups of units cannot be one person."""

MAX_ODDS: Final = 1e6


def partition(
    units: Sequence[str],
    links: Mapping[Pair, float],
    are_distinct: AreDistinct,
    accept: float,
    untrusted: Collection[str] = (),
) -> list[list[str]]:
    """Return the units of each person. `units` are in an order that does not depend on their arrival.

    `links` has the confidence of each pair, with the unit first that comes first in `units`. Linked units are never
    distinct, so they need no comparison.
    """
    neighbours: dict[str, dict[str, float]] = {unit: {} for unit in units}
    for (one, other), confidence in links.items():
        neighbours[one][other] = neighbours[other][one] = odds_of(confidence)
    position = {unit: n for n, unit in enumerate(units)}
    accepted: list[tuple[float, int, int]] = []
    for one, other in links:
        odds = neighbours[one][other]
        rivals = sum(_rivals(neighbours, here, there, are_distinct) for here, there in ((one, other), (other, one)))
        confidence = odds / (1 + odds + rivals)
        if confidence >= min(accept, odds / (1 + odds)):
            accepted.append((-confidence, position[one], position[other]))
    groups = {unit: [unit] for unit in units}
    ordered = sorted(accepted)
    trusted = [one for one in ordered if units[one[1]] not in untrusted and units[one[2]] not in untrusted]
    for _, first, second in trusted:
        _join(neighbours, groups, units[first], units[second], are_distinct)
    taken: set[str] = set()
    for _, first, second in ordered:
        one, other = units[first], units[second]
        if (one in untrusted) == (other in untrusted):
            continue
        leaf, core = (one, other) if one in untrusted else (other, one)
        if leaf not in taken and _join(neighbours, groups, leaf, core, are_distinct):
            taken.add(leaf)
    for _, first, second in ordered:
        one, other = units[first], units[second]
        if one in untrusted and other in untrusted and not taken & {one, other}:
            _join(neighbours, groups, one, other, are_distinct)
    return list({id(group): group for group in groups.values()}.values())


def odds_of(confidence: float) -> float:
    return min(confidence / (1 - confidence), MAX_ODDS) if confidence < 1 else MAX_ODDS


def _rivals(neighbours: Mapping[str, Mapping[str, float]], unit: str, partner: str, are_distinct: AreDistinct) -> float:
    """Return the odds that `unit` belongs to someone other than `partner`, even if both are taken together."""
    return sum(
        odds
        for other, odds in neighbours[unit].items()
        if other != partner and other not in neighbours[partner] and are_distinct((partner, unit), (other,))
    )


def _join(
    neighbours: Mapping[str, Mapping[str, float]],
    groups: dict[str, list[str]],
    one: str,
    other: str,
    are_distinct: AreDistinct,
) -> bool:
    ours, theirs = groups[one], groups[other]
    if ours is theirs:
        return True
    if not all(their in neighbours[mine] for mine in ours for their in theirs) and are_distinct(ours, theirs):
        return False
    ours.extend(theirs)
    for unit in theirs:
        groups[unit] = ours
    return True
