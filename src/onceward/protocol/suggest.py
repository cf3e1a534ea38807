"""Suggest the known name that was probably meant."""

from __future__ import annotations

from collections.abc import Collection


def closest_name(name: object, known: Collection[str]) -> str:
    """Return "did you mean …?" if a known name is similar, else ""."""
    from difflib import get_close_matches  # imported here, because most names are right

    near = get_close_matches(str(name), known, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def did_you_mean(name: object, known: Collection[str], intro: str) -> str:
    """Return a hint: the most similar known name, if any, then `intro` and all known names."""
    return f"{closest_name(name, known)}{intro}: {', '.join(sorted(known)) or 'none'}"
