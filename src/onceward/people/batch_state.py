"""What the database knows about a batch of records: read once, then updated with each decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain
from typing import NamedTuple

from msgspec import Struct

from .blocking import candidates_of
from .preparation import EncodedRecord, NormalForm, PreparedRecord, decode_form
from .tables import CANDIDATES, CONTRIBUTIONS, KEYS, LINKS_OF, RECORDS_OF, REVIEWS_OF, Tables

MAX_PER_COMPLETE_BLOCK = 400
MAX_PER_PARTIAL_BLOCK = 32
"""Records that are read per block. See `blocking`: a larger block also has narrower ones."""


class StoredContribution(Struct):
    """A contribution as the tables have it."""

    number: int
    unit: str
    fingerprint: bytes
    at: int | None
    """None if the source gave no time."""

    form: NormalForm
    rule: str = ""
    """The rule that assigned it to its person; `split` if an operator did."""


class Candidate(NamedTuple):
    """A record that shares blocks with another one."""

    number: int
    person: str
    form: NormalForm


class Node(NamedTuple):
    """A record, and the unit it belongs to."""

    number: int
    unit: str
    source: str
    record: str
    form: NormalForm
    has_keys: bool


class BatchState:
    """Changes with each decision, so that a record is compared with the records before it in the batch."""

    def __init__(self) -> None:
        self.contributions: dict[tuple[str, str], StoredContribution] = {}
        self.keys: dict[str, str] = {}
        """The unit that has each key."""

        self.candidates: dict[tuple[str, str], list[Candidate]] = {}
        self.nodes: dict[int, Node] = {}
        self.members: dict[str, set[int]] = {}
        self.links: dict[int, dict[int, float]] = {}
        self.person: dict[str, str] = {}
        """The person that each unit belongs to."""

        self.stored_person: dict[str, str] = {}
        """The same, as it was read."""

        self.merged: dict[str, str] = {}
        """Units that were merged into another one."""

        self._units: dict[str, set[str]] = {}
        self._loaded: set[str] = set()
        self._distinct: dict[str, set[str]] = {}

    def current(self, unit: str) -> str:
        """Return the unit that this one is part of after the merges of this batch."""
        while unit in self.merged:
            unit = self.merged[unit]
        return unit

    def person_of(self, unit: str) -> str:
        return self.person[self.current(unit)]

    def are_distinct(self, one: str, other: str) -> bool:
        """Return whether an operator said that these units are different people."""
        return other in self._distinct.get(one, ())

    def forms(self, unit: str, limit: int | None = None) -> list[NormalForm]:
        """Return the normal forms of a unit's records, or of its first `limit` records, each once."""
        members = self.members[unit]
        numbers = sorted(members) if limit is None else nsmallest(limit, members)
        return list(dict.fromkeys(self.nodes[number].form for number in numbers))

    def units_of(self, people: Iterable[str]) -> set[str]:
        """Return the units of these people that have records."""
        return {unit for person in people for unit in self._units.get(person, ()) if self.members.get(unit)}

    # ── changing ────────────────────────────────────────────────────────────────────────────────────────────────

    def add_unit(self, unit: str, person: str) -> None:
        self.members.setdefault(unit, set())
        self.set_person(unit, person)

    def set_person(self, unit: str, person: str) -> None:
        before = self.person.get(unit)
        if before is not None:
            self._units[before].discard(unit)
        self.person[unit] = person
        self._units.setdefault(person, set()).add(unit)

    def add_node(self, node: Node) -> None:
        self.nodes[node.number] = node
        self.members.setdefault(node.unit, set()).add(node.number)

    def drop_node(self, number: int) -> None:
        node = self.nodes.pop(number, None)
        if node is not None:
            self.members[node.unit].discard(number)
        for other in self.links.pop(number, {}):
            self.links[other].pop(number, None)

    def link(self, one: int, other: int, confidence: float) -> None:
        self.links.setdefault(one, {})[other] = confidence
        self.links.setdefault(other, {})[one] = confidence

    def mark_distinct(self, one: str, other: str) -> None:
        self._distinct.setdefault(one, set()).add(other)
        self._distinct.setdefault(other, set()).add(one)

    def merge(self, one: str, other: str) -> str:
        """Merge two units into the older one, and return it."""
        survivor, loser = sorted((one, other), key=age)
        self.merged[loser] = survivor
        for number in self.members.pop(loser, set()):
            self.add_node(self.nodes[number]._replace(unit=survivor))
        self._units[self.person.pop(loser)].discard(loser)
        for far in self._distinct.pop(loser, ()):
            self._distinct[far].discard(loser)
            self.mark_distinct(survivor, far)
        return survivor

    def connected(self, units: Iterable[str]) -> list[str]:
        """Return these units and all that links lead to, directly or not, ordered by the names of their records."""
        found = {unit for unit in units if self.members.get(unit)}
        queue = list(found)
        while queue:
            for number in self.linked(queue.pop()):
                for other in self.links[number]:
                    unit = self.nodes[other].unit
                    if unit not in found:
                        found.add(unit)
                        queue.append(unit)
        return sorted(found, key=self._name) if len(found) > 1 else list(found)

    def linked(self, unit: str) -> set[int]:
        """Return the records of a unit that have links. A unit may have thousands of records without one."""
        return self.links.keys() & self.members[unit]

    def _name(self, unit: str) -> tuple[str, str]:
        return min((self.nodes[number].source, self.nodes[number].record) for number in self.members[unit])

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def read_contributions(self, tables: Tables, batch: Iterable[EncodedRecord]) -> None:
        by_source: dict[str, list[str]] = {}
        for one in batch:
            by_source.setdefault(one.source, []).append(one.record)
        for source, records in by_source.items():
            for record, number, person, unit, *version, form, rule in tables.run(CONTRIBUTIONS, records, source):
                fingerprint, at, dated = version
                self.contributions[source, record] = StoredContribution(
                    number, unit, bytes(fingerprint), at if dated else None, decode_form(form), rule
                )
                self._read_unit(unit, person)

    def read_keys(self, tables: Tables, batch: Iterable[PreparedRecord]) -> None:
        wanted = list({key for one in batch for key in (*one.keys, *one.claims)})
        for key, person, unit in tables.run(KEYS, wanted) if wanted else ():
            self.keys[key] = unit
            self._read_unit(unit, person)

    def read_candidates(self, tables: Tables, batch: Sequence[PreparedRecord]) -> None:
        members: dict[int, list[int]] = {}
        for most, wanted in (
            (MAX_PER_COMPLETE_BLOCK, list({block for one in batch for block in one.blocks.complete})),
            (MAX_PER_PARTIAL_BLOCK, list({block for one in batch for block in one.blocks.partial})),
        ):
            for block, number in tables.candidates(wanted, most) if wanted else ():
                members.setdefault(block, []).append(number)
        self.set_candidates(tables, batch, [candidates_of(one.blocks, members) for one in batch])

    def set_candidates(
        self, tables: Tables, batch: Sequence[PreparedRecord], candidates: Sequence[Sequence[int]]
    ) -> None:
        """Read the candidates of each record of the batch, given by their numbers."""
        numbers = [str(number) for number in set(chain.from_iterable(candidates))]
        rows = tables.run(CANDIDATES, numbers) if numbers else []
        found = {number: Candidate(number, person, decode_form(form)) for number, person, form in rows}
        for one, several in zip(batch, candidates, strict=True):
            self.candidates[one.source, one.record] = [found[number] for number in several if number in found]

    def load_people(self, tables: Tables, people: Iterable[str]) -> None:
        """Read all records of these people, and of everyone that links lead to."""
        pending = set(people) - self._loaded
        while pending:
            self._loaded |= pending
            numbers = []
            for number, person, unit, source, record, form, has_keys in tables.run(RECORDS_OF, sorted(pending)):
                self._read_unit(unit, person)
                self.add_node(Node(number, unit, source, record, decode_form(form), bool(has_keys)))
                numbers.append(str(number))
            pending = set()
            for number, other, confidence, person in tables.run(LINKS_OF, numbers) if numbers else ():
                self.links.setdefault(number, {})[other] = confidence
                self.links.setdefault(other, {})[number] = confidence
                if person not in self._loaded:
                    pending.add(person)

    def read_distinct(self, tables: Tables) -> None:
        """Read the answers of operators about the units that this batch may join."""
        wanted = sorted(self.person)
        for one, other, answer in tables.run(REVIEWS_OF, wanted, wanted) if wanted else ():
            if answer == "different":
                self.mark_distinct(one, other)

    def _read_unit(self, unit: str, person: str) -> None:
        if unit not in self.person:
            self.stored_person[unit] = person
            self.add_unit(unit, person)

    def __iter__(self) -> Iterator[str]:
        """Yield the units."""
        return iter(self.person)


def age(unit: str) -> int:
    """Return the number in the id of a unit or person: older ones have lower numbers."""
    return int(unit[1:])
