"""A pattern of a schedule, as it was read: which local times it means. Who reads the text is not decided here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from msgspec import Struct


class Pattern(Struct, frozen=True):
    """The times of a day, sorted, and the dates that they are meant for.

    `fixed` as Debian's cron has it: neither the minute nor the hour begins with a star, so that a person meant the
    time that a clock on the wall shows. All others mean real time.
    """

    text: str
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    is_on: Callable[[date], bool]
    fixed: bool
