"""What the database knows about a batch of records: read once, then updated with each decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
from msgspec import Struct

from .blocking import best_candidates
from .preparation import EncodedRecord, NormalForm, PreparedRecord
from .tables import CONTRIBUTIONS, FORMS, FORMS_OF, KEYS, REVIEWS_OF, Tables

MAX_PER_BLOCK = 32
"""Contributions that are read per block. Larger blocks are weak evidence, and every record is in several blocks."""

_form = msgspec.json.Decoder(tuple[str, ...]).decode


class StoredContribution(Struct):
    """A contribution as the tables have it."""

    number: int
    person: str
    fingerprint: bytes
    at: int | None
    """None if the source gave no time."""

    form: NormalForm
    rule: str = ""
    """The rule that assigned it to its person; `split` if an operator did."""


class Candidate(NamedTuple):
    """A contribution that shares blocks with a record."""

    number: int
    person: str
    form: NormalForm


class BatchState:
    """Changes with each decision, so that a record is compared with the records before it in the batch."""

    def __init__(self) -> None:
        self.contributions: dict[tuple[str, str], StoredContribution] = {}
        self.keys: dict[str, str] = {}
        self.candidates: dict[tuple[str, str], list[Candidate]] = {}
        self.merged: dict[str, str] = {}
        self._forms: dict[str, dict[int, NormalForm]] = {}
        self._distinct: dict[str, set[str]] = {}

    def current(self, person: str) -> str:
        """Return the id that this person has after the merges of this batch."""
        while person in self.merged:
            person = self.merged[person]
        return person

    def are_distinct(self, one: str, other: str) -> bool:
        """Return whether an operator said that these are two different people."""
        return other in self._distinct.get(one, ())

    def forms(self, person: str) -> Sequence[NormalForm]:
        """Return the normal forms of all records of a person."""
        return list(self._forms[person].values())

    def first_number(self, person: str) -> int:
        """Return the number of the person's first record: the older person has the lower one."""
        return min(self._forms[person])

    def add_form(self, person: str, number: int, form: NormalForm) -> None:
        self._forms.setdefault(person, {})[number] = form

    def drop_form(self, person: str, number: int) -> None:
        """Remove a record from a person, except the last one: a person without records keeps the last known fields."""
        forms = self._forms.get(person, {})
        if len(forms) > 1:
            forms.pop(number, None)

    def mark_distinct(self, one: str, other: str) -> None:
        self._distinct.setdefault(one, set()).add(other)
        self._distinct.setdefault(other, set()).add(one)

    def merge(self, loser: str, survivor: str) -> None:
        self.merged[loser] = survivor
        self._forms.setdefault(survivor, {}).update(self._forms.pop(loser, {}))
        for other in self._distinct.pop(loser, ()):
            self.mark_distinct(survivor, other)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def read_contributions(self, tables: Tables, batch: Iterable[PreparedRecord | EncodedRecord]) -> None:
        by_source: dict[str, list[str]] = {}
        for one in batch:
            by_source.setdefault(one.source, []).append(one.record)
        for source, records in by_source.items():
            for record, number, person, *version, form, rule in tables.run(CONTRIBUTIONS, records, source):
                fingerprint, at, dated = version
                self.contributions[source, record] = StoredContribution(
                    number, person, bytes(fingerprint), at if dated else None, _form(form), rule
                )

    def read_keys(self, tables: Tables, batch: Iterable[PreparedRecord]) -> None:
        wanted = list({key for one in batch for key in one.keys})
        if wanted:
            self.keys.update(tables.run(KEYS, wanted))

    def read_candidates(self, tables: Tables, batch: Sequence[PreparedRecord]) -> None:
        wanted = list({block for one in batch for block in chain(*one.blocks)})
        members: dict[int, list[int]] = {}
        for block, number in tables.candidates(wanted, MAX_PER_BLOCK) if wanted else ():
            members.setdefault(block, []).append(number)
        best = [best_candidates(one.blocks, members) for one in batch]
        numbers = [str(number) for number in {number for several in best for number in several}]
        rows = tables.run(FORMS, numbers) if numbers else []
        found = {number: Candidate(number, person, _form(form)) for number, person, form in rows}
        for one, several in zip(batch, best, strict=True):
            self.candidates[one.source, one.record] = [found[number] for number in several]

    def read_forms(self, tables: Tables, people: Iterable[str]) -> None:
        wanted = list(people)
        for number, person, form in tables.run(FORMS_OF, wanted) if wanted else ():
            self.add_form(person, number, _form(form))

    def read_distinct(self, tables: Tables, candidates: set[str]) -> None:
        """Read the answers about people whom this batch may merge or confuse: owners of its keys, and candidates."""
        wanted = list(candidates.union(self.keys.values()))
        for one, other, answer in tables.run(REVIEWS_OF, wanted, wanted) if wanted else ():
            if answer == "different":
                self.mark_distinct(one, other)
