"""A parsed pattern of a schedule: which local times it matches. It does not depend on the parser."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from msgspec import Struct


class Pattern(Struct, frozen=True):
    """The times of a day, sorted, and the dates to which they apply.

    `fixed` is as in Debian's cron: neither the minute nor the hour begins with a star, so the pattern means local
    wall-clock time. All other patterns mean elapsed time.
    """

    text: str
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    matches_date: Callable[[date], bool]
    fixed: bool
