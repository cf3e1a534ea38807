"""One part of the report of a soak."""

from __future__ import annotations

from typing import NamedTuple


class Section(NamedTuple):
    """What was run, whether it passed, and its figures."""

    title: str
    command: str
    passed: bool
    figures: list[tuple[str, object]]
