"""The progress of imports into people."""

from __future__ import annotations

from onceward.imports.people import imports_of
from onceward.people.people import People

from .model import ImportRow


def import_rows(people: People) -> list[ImportRow]:
    """Return the imports, by name."""
    return [
        ImportRow(
            one.name,
            one.state,
            one.done,
            one.counts.created,
            one.counts.updated,
            one.counts.skipped,
            one.counts.rejected,
            one.counts.to_review,
            one.rejects,
        )
        for one in imports_of(people)
    ]
