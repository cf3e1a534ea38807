"""Find people by any of their fields, and the links that hold a person together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from . import queries
from . import tables as sql
from .fields import Preset
from .merge import as_mapping
from .normalise import fold
from .person import Person
from .preparation import decode_form
from .similarity import Similarity
from .source import Evidence
from .tables import Tables

PAGE: Final = 2_000
FIELDS_AFTER: Final = """
SELECT id, fields FROM {t}onceward_people WHERE id > ? AND merged_into IS NULL ORDER BY id LIMIT ?
"""


class RecordLink(Struct, frozen=True):
    """Two records of one person that similarity has joined, by their numbers, and how their fields compare."""

    one: int
    other: int
    confidence: float
    evidence: tuple[Evidence, ...]


def search(tables: Tables, preset: Preset, wanted: Mapping[str, Any], limit: int) -> list[Person]:
    """Return people whose fields contain these texts. Case, accents and punctuation do not matter."""
    for name, value in wanted.items():
        if name in preset.fields and preset.fields[name].strong and len(wanted) == 1:
            found = queries.by_keys(tables, preset, name, [value])
            if found:
                return list(found.values())
    texts = {name: fold(str(value)) for name, value in wanted.items()}
    ids: list[str] = []
    for person, fields in _all_fields(tables):
        values = as_mapping(fields)
        if all(text in fold(str(values.get(name, ""))) for name, text in texts.items()):
            ids.append(person)
            if len(ids) == limit:
                break
    return list(queries.people(tables, ids))


def _all_fields(tables: Tables) -> Iterator[tuple[str, str]]:
    after = ""
    while rows := tables.run(FIELDS_AFTER, after, PAGE):
        yield from ((person, fields) for person, fields in rows)
        after = rows[-1][0]


def links_of(tables: Tables, similarity: Similarity, person: Person) -> list[RecordLink]:
    """Return the links between the records of a person, the most certain first."""
    forms = {number: decode_form(form) for number, _, _, _, _, form, _ in tables.run(sql.RECORDS_OF, [person.id])}
    found = []
    for one, other, confidence, _ in tables.run(sql.LINKS_OF, list(map(str, forms))) if forms else ():
        if one < other and other in forms:
            found.append(RecordLink(one, other, confidence, similarity.evidence(forms[one], forms[other])))
    return sorted(found, key=lambda link: (-link.confidence, link.one, link.other))
