"""Schedules with one rule broken each. A simulation that does not notice these proves nothing about the sound ones."""

from __future__ import annotations

from collections.abc import Callable


def break_(variant: str) -> None:
    if variant:
        VARIANTS[variant]()


VARIANTS: dict[str, Callable[[], None]] = {}
