"""Erase a person: every record, key, link, question and id, also in the ledger of imports."""

from __future__ import annotations

from typing import Final

from . import queries
from .ingest import drop_links
from .tables import Tables

DELETE_RECORDS: Final = "DELETE FROM {t}onceward_contributions WHERE person = ?"
DELETE_KEYS: Final = "DELETE FROM {t}onceward_person_keys WHERE person = ?"
DELETE_BLOCKS_OF: Final = """
DELETE FROM {t}onceward_blocking WHERE number IN (SELECT CAST(wanted.value AS {big}) FROM {texts})
"""
REDIRECTING: Final = """
SELECT p.id FROM {texts} CROSS JOIN {t}onceward_people AS p WHERE p.merged_into = wanted.value
"""
DELETE_PERSON: Final = "DELETE FROM {t}onceward_people WHERE id = ?"
DELETE_REVIEWS_OF: Final = "DELETE FROM {t}onceward_reviews WHERE one = ? OR other = ?"
DELETE_IMPORT_ROW: Final = "DELETE FROM {t}onceward_import_rows WHERE name || ':' || key = ?"


def erase(tables: Tables, wanted: str) -> int:
    """Erase the person and return the number of records. An unknown id raises."""
    tables.lock_all()
    person = queries.existing(tables, wanted, "`onceward people search` finds people")
    numbers = [str(part.number) for part in person.contributions]
    if numbers:
        tables.run(DELETE_BLOCKS_OF, numbers)
        drop_links(tables, [part.number for part in person.contributions])
    tables.run(DELETE_RECORDS, person.id)
    tables.run(DELETE_KEYS, person.id)
    ids = _ids(tables, person.id)
    tables.run_many(DELETE_REVIEWS_OF, [(one, one) for one in ids])
    tables.run_many(DELETE_PERSON, [(one,) for one in ids])
    if tables.has_table("onceward_import_rows"):  # the ledger of imports
        records = {part.record for part in person.contributions}
        records |= {record.rpartition("#")[0] for record in records if "#" in record}  # a further row of one key
        tables.run_many(DELETE_IMPORT_ROW, [(record,) for record in sorted(records)])
    return len(numbers)


def _ids(tables: Tables, person: str) -> list[str]:
    """Return the id of the person, and all ids that redirect to it."""
    found, queue = [person], [person]
    while queue:
        queue = [one for (one,) in tables.run(REDIRECTING, queue) if one not in found]
        found += queue
    return found
