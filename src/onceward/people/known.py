"""What is known around a batch of records: read once, and kept up to date while they are decided one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
from msgspec import Struct

from .blocking import closest
from .prepare import Form, Prepared, Sketch
from .tables import APART, CONTRIBUTIONS, FORMS, FORMS_OF, KEYS, Tables

MOST_NEAR = 32
"""Contributions of one block that are looked at. One with more is of little use, and every record has several."""

_form = msgspec.json.Decoder(tuple[str, ...]).decode


class Stored(Struct):
    """A contribution as the tables have it."""

    number: int
    person: str
    fingerprint: bytes
    at: int | None
    """None where the source did not say."""

    form: Form
    rule: str = ""
    """By which it came to its person; `split`: somebody said so."""


class Near(NamedTuple):
    """A contribution that shares blocks."""

    number: int
    person: str
    form: Form


class Known:
    """Grows and changes with each decision, so that the records of a batch know of each other."""

    def __init__(self) -> None:
        self.contributions: dict[tuple[str, str], Stored] = {}
        self.keys: dict[str, str] = {}
        self.near: dict[tuple[str, str], list[Near]] = {}
        self.merged: dict[str, str] = {}
        self._forms: dict[str, dict[int, Form]] = {}
        self._apart: dict[str, set[str]] = {}

    def current(self, person: str) -> str:
        """Who this person turned out to be in this batch."""
        while person in self.merged:
            person = self.merged[person]
        return person

    def are_apart(self, one: str, other: str) -> bool:
        """Whether somebody said that these are two people."""
        return other in self._apart.get(one, ())

    def forms(self, person: str) -> Sequence[Form]:
        """All that is known of somebody."""
        return list(self._forms[person].values())

    def since(self, person: str) -> int:
        """The number of the first record: who is older."""
        return min(self._forms[person])

    def add_form(self, person: str, number: int, form: Form) -> None:
        self._forms.setdefault(person, {})[number] = form

    def drop_form(self, person: str, number: int) -> None:
        """But for the last one: who has no record any more stays as they were last known."""
        forms = self._forms.get(person, {})
        if len(forms) > 1:
            forms.pop(number, None)

    def keep_apart(self, one: str, other: str) -> None:
        self._apart.setdefault(one, set()).add(other)
        self._apart.setdefault(other, set()).add(one)

    def merge(self, loser: str, survivor: str) -> None:
        self.merged[loser] = survivor
        self._forms.setdefault(survivor, {}).update(self._forms.pop(loser, {}))
        for other in self._apart.pop(loser, ()):
            self.keep_apart(survivor, other)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def read_contributions(self, tables: Tables, batch: Iterable[Prepared | Sketch]) -> None:
        by_source: dict[str, list[str]] = {}
        for one in batch:
            by_source.setdefault(one.source, []).append(one.record)
        for source, records in by_source.items():
            for record, number, person, *told, form, rule in tables.rows(CONTRIBUTIONS, records, source):
                fingerprint, at, dated = told
                self.contributions[source, record] = Stored(
                    number, person, bytes(fingerprint), at if dated else None, _form(form), rule
                )

    def read_keys(self, tables: Tables, batch: Iterable[Prepared]) -> None:
        wanted = list({key for one in batch for key in one.keys})
        if wanted:
            self.keys.update(tables.rows(KEYS, wanted))

    def read_near(self, tables: Tables, batch: Sequence[Prepared]) -> None:
        wanted = list({block for one in batch for block in chain(*one.blocks)})
        inside: dict[int, list[int]] = {}
        for block, number in tables.near(wanted, MOST_NEAR) if wanted else ():
            inside.setdefault(block, []).append(number)
        near = [closest(one.blocks, inside) for one in batch]
        numbers = [str(number) for number in {number for several in near for number in several}]
        rows = tables.rows(FORMS, numbers) if numbers else []
        found = {number: Near(number, person, _form(form)) for number, person, form in rows}
        for one, several in zip(batch, near, strict=True):
            self.near[one.source, one.record] = [found[number] for number in several]

    def read_forms(self, tables: Tables, people: Iterable[str]) -> None:
        wanted = list(people)
        for number, person, form in tables.rows(FORMS_OF, wanted) if wanted else ():
            self.add_form(person, number, _form(form))

    def read_apart(self, tables: Tables, near: set[str]) -> None:
        """Only about those whom this batch may merge or confuse: the owners of its keys and those who are near."""
        wanted = list(near.union(self.keys.values()))
        for one, other, answer in tables.rows(APART, wanted, wanted) if wanted else ():
            if answer == "different":
                self.keep_apart(one, other)
