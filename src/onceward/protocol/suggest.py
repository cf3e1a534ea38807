"""The known name that was probably meant."""

from __future__ import annotations

from collections.abc import Collection


def closest_name(name: object, known: Collection[str]) -> str:
    """A question to begin a hint with, if a known name is near; else nothing."""
    from difflib import get_close_matches  # here, because most names are right

    near = get_close_matches(str(name), known, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def did_you_mean(name: object, known: Collection[str], intro: str) -> str:
    """A hint: the nearest known name, if one is near, and all of them behind `intro`."""
    return f"{closest_name(name, known)}{intro}: {', '.join(sorted(known)) or 'none'}"
