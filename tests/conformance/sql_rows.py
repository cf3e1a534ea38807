"""Rows of the SQL stores, as the conformance kit compares them with records."""

from __future__ import annotations

from collections.abc import Mapping

from onceward.stores.sql import NULL_MEANS, NULL_MEANS_SAME_AS

IN_ANOTHER_SHAPE = {"arguments", "note"}


def filled(row: Mapping[str, object]) -> dict[str, object]:
    """Return the row with the values that NULL stands for, without the columns that contain JSON."""
    values = {name: value for name, value in row.items() if name not in IN_ANOTHER_SHAPE}
    for name, usual in NULL_MEANS.items():
        if name in values and values[name] is None:
            values[name] = usual
    for name, other in NULL_MEANS_SAME_AS.items():
        if values[name] is None:
            values[name] = values[other]
    return values
