"""List the imports into a database of people, for operators."""

from __future__ import annotations

from onceward.people.people import TABLE_EXISTS, People

from .ledger import LedgerEntry, find, names
from .people import PeopleTransaction


def imports_of(people: People) -> list[LedgerEntry]:
    """Return how far each import has come, by name. Empty if nothing was ever imported."""
    with people.reading() as within:
        transaction = PeopleTransaction(within)
        if not transaction.rows(TABLE_EXISTS["sqlite" if people.url.startswith("sqlite:") else "postgresql"]):
            return []
        found = [find(transaction, name) for name in names(transaction)]
    return [entry for entry in found if entry is not None]
