"""Recognise dated exports: `export-2026-02.csv` is probably the next edition of `export-2026-01.csv`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_DATE: Final = re.compile(r"\d{4}[-_.]?\d{2}(?:[-_.]?\d{2})?(?:[-_.T]?\d{2,6})?|\d{2}[-_.]\d{2}[-_.]\d{4}")
MARK: Final = "#"


def without_date(name: str) -> str:
    """Replace the dates in a file name with a placeholder."""
    return _DATE.sub(MARK, name)


def earlier_edition(name: str, known: Iterable[str]) -> str | None:
    """Return the last known name that differs from this one only by its date."""
    wanted = without_date(name)
    if MARK not in wanted:
        return None
    found = sorted(other for other in known if other != name and without_date(other) == wanted)
    return found[-1] if found else None


def suggested_name(name: str) -> str:
    """Return a name for all editions: `export-2026-02.csv` becomes `export`."""
    stem = without_date(name.rpartition("/")[2].rpartition(".")[0] or name)
    return re.sub(rf"[-_. ]*{MARK}[-_. ]*", "-", stem).strip("-_. ") or "export"
