"""Translate a preset and its model into settings of Splink, which finds similar pairs among many records at once.

Splink must not lose a pair that Onceward would link or ask about, so it scores each pair as favourably as possible:
a value that differs counts as the most favourable level of difference, an equal name as the rarest name. Onceward then
compares the remaining pairs itself, with all levels and rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from .fields import GIVEN, SURNAME, FieldSlot, Preset
from .kinds import SWAPPED, MatchLevel
from .model import Model
from .similarity import learned_levels

NUMBER: Final = "number"
BLOCKS: Final = "blocks"


def column(slot: int) -> str:
    """Return the name of the column with the values of this slot. Field names may contain anything."""
    return f"value_{slot}"


def comparisons(preset: Preset, model: Model) -> list[dict[str, Any]]:
    """Return one comparison per slot, with three levels: missing, equal, and different."""
    ratios = {n: _ratios(slot, model) for n, slot in enumerate(preset.slots)}
    shares = {
        GIVEN: min([model.other_given_name, *model.given_names.values()]),
        SURNAME: min([model.other_surname, *model.surnames.values()]),
    }
    for n, share in shares.items():
        equal, different = ratios[n]
        ratios[n] = max(equal, 1 / share), different
    swapped = SWAPPED.same / SWAPPED.strangers / ratios[SURNAME][1]  # given name and surname then both differ
    ratios[GIVEN] = ratios[GIVEN][0], max(ratios[GIVEN][1], swapped)
    return [_comparison(column(n), equal, different) for n, (equal, different) in ratios.items()]


def _ratios(slot: FieldSlot, model: Model) -> tuple[float, float]:
    """Return how much an equal value, and a different one at best, supports the same person."""
    levels = learned_levels(slot.kind, model.levels.get(slot.name, {}))
    equal, *others = (_ratio(level, is_place=slot.kind.role == "place") for level in levels)
    return equal, max(others, default=equal)


def _ratio(level: MatchLevel, *, is_place: bool) -> float:
    """Return the odds of one level. Places: of the likeliest of dwelling, town and elsewhere."""
    likeliest = max(level.same, level.household, level.strangers) if is_place else level.same
    return likeliest / level.strangers


def _comparison(name: str, equal: float, different: float) -> dict[str, Any]:
    left, right = f'"{name}_l"', f'"{name}_r"'
    return {
        "output_column_name": name,
        "comparison_levels": [
            {"sql_condition": f"{left} IS NULL OR {right} IS NULL", "is_null_level": True},
            {"sql_condition": f"{left} = {right}", **_probabilities(equal)},
            {"sql_condition": "ELSE", **_probabilities(different)},
        ],
    }


def _probabilities(ratio: float) -> dict[str, float]:
    """Return two probabilities with this ratio: only the ratio has an effect on the score."""
    return {"m_probability": 0.5 * min(1.0, ratio), "u_probability": 0.5 / max(1.0, ratio)}


def row(number: int, form: Iterable[str], blocks: Iterable[int]) -> dict[str, Any]:
    """Return the row of one record. Blocks are texts: JSON readers would turn large integers into floats."""
    values = {column(n): value or None for n, value in enumerate(form)}
    return {NUMBER: number, **values, BLOCKS: [str(block) for block in blocks]}
