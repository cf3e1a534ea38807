"""Decide which person a source record belongs to.

This module does no I/O. It reads the `BatchState`, and collects what has to be written.

First the record gets a *unit*: the records that belong together whatever their fields say. The first rule that applies
decides:

1. The record is already stored and unchanged, or a newer version of it is stored: skip it.
2. An operator moved this record out of another person (a split), and it may still describe the same person: it stays.
3. A strong key of the record belongs to a unit: it joins that unit. If its keys belong to several units, these are
   merged, unless an operator said that they are different people.
4. The record is already stored under the same id, and it may still describe the same person: it stays.
5. A record without keys is equal in every compared field: it joins that unit.
6. Otherwise it is a new unit.

Then the record is linked to similar records (confidence of at least `accept`, and enough evidence), and the units that
are connected by links are divided into people (see `partition`). So the people depend on the stored records, and not on
their order. Similar records that are not joined become questions for `onceward review`. `People(similarity=False)`
omits rule 5 and the links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from .batch_state import BatchState, Candidate, Node, StoredContribution, age
from .blocking import candidates_of
from .fields import Preset
from .match_types import (
    CLAIMED,
    MAX_COMPARED,
    MAX_QUESTIONS,
    SIMILARITY,
    SPLIT,
    Assignment,
    ReviewRequest,
    SimilarRecord,
    UnitChoice,
    skip_unchanged,
)
from .partition import Pair, odds_of, partition
from .preparation import NormalForm, PreparedRecord
from .similarity import Similarity, describe
from .source import Decision


class Matcher:
    """Decides record by record. The other attributes collect what has to be written."""

    def __init__(self, preset: Preset, similarity: Similarity, state: BatchState) -> None:
        self.preset = preset
        self._similarity = similarity
        self.state = state
        self.assignments: dict[int, Assignment] = {}
        self.created: list[str] = []
        self.new_keys: dict[str, str] = {}
        self.review_requests: list[ReviewRequest] = []
        self._batch_blocks: dict[int, list[int]] = {}
        self._vacated: dict[NormalForm, str] = {}
        """Units that lost their last record in this batch, by its form: the source may have renumbered its rows."""

    def decide(self, record: PreparedRecord, new_number: int) -> Decision:
        """Decide which person the record belongs to.

        `new_number` is an unused number. A new record gets it, and so does a unit that is created.
        """
        state = self.state
        stored = state.contributions.get((record.source, record.record))
        if stored is not None:
            if stored.fingerprint == record.fingerprint:
                return skip_unchanged(state.person_of(stored.unit))
            if record.at is not None and stored.at is not None and record.at < stored.at:
                return Decision(
                    "skipped", state.person_of(stored.unit), "older", "a newer version of this record is already stored"
                )
        elif self._is_new(record):
            choice = self._new_unit(new_number)
            self._add(record, new_number, choice)
            return self._assign(record, new_number, choice.unit, self._new_person(record, choice.unit, []), None)
        number = new_number if stored is None else stored.number
        similar = self._similar(record, number)
        before = self._affected(record, stored, similar)
        state.drop_node(number)
        choice = self._choose_unit(record, new_number, stored, similar)
        self._add(record, number, choice)
        if stored is not None and not state.members.get(state.current(stored.unit)):
            self._vacated[stored.form] = state.current(stored.unit)
        self._link(record, number, choice.unit, similar)
        if self.needs_people(record) or stored is not None:
            self._divide({choice.unit, *(state.current(unit) for unit in before)})
        decision = self._decision(record, number, choice, similar, before)
        earlier = self.assignments.get(number)
        return self._assign(record, number, choice.unit, decision, stored if earlier is None else earlier.before)

    def _is_new(self, record: PreparedRecord) -> bool:
        """Return whether the record has only keys, and all are new, as most rows of an import by e-mail do."""
        return not (
            any(record.blocks) or record.claims or self._vacated or any(k in self.state.keys for k in record.keys)
        )

    def _assign(
        self, record: PreparedRecord, number: int, unit: str, decision: Decision, before: StoredContribution | None
    ) -> Decision:
        decision = replace(decision, ignored=record.ignored) if record.ignored else decision
        self.assignments[number] = Assignment(record, decision, unit, number, before)
        return decision

    def relink(self, record: PreparedRecord) -> int:
        """Link a stored record again, and divide the people it is connected with. Return its number."""
        state = self.state
        stored = state.contributions[record.source, record.record]
        similar = self._similar(record, stored.number)
        before = self._affected(record, stored, similar)
        self._link(record, stored.number, stored.unit, similar)
        self._divide({stored.unit, *before})
        self._ask(stored.number, similar, before)
        return stored.number

    def needs_people(self, record: PreparedRecord) -> bool:
        """Return whether the decision may change which person the records of a key's owner belong to."""
        return any(record.blocks) or len(record.keys) > 1 or bool(record.claims)

    # ── the unit ────────────────────────────────────────────────────────────────────────────────────────────────

    def _choose_unit(
        self, record: PreparedRecord, new_number: int, stored: StoredContribution | None, similar: list[SimilarRecord]
    ) -> UnitChoice:
        state = self.state
        unit = None if stored is None else state.current(stored.unit)
        may_stay = stored is not None and self._may_be_same_person(record.form, stored.form)
        if stored is not None and unit is not None and stored.rule == SPLIT and may_stay:
            return UnitChoice(unit, SPLIT, "an operator moved this record here from another person")
        owners = list(dict.fromkeys(state.current(state.keys[key]) for key in record.keys if key in state.keys))
        if owners:
            return self._join_owners(record, owners)
        if unit is not None and may_stay:
            return UnitChoice(unit, "same_record", f"{record.source} already sent a record with this id")
        equal = self._equal_unit(record, similar)
        if equal is not None:
            return UnitChoice(equal, SIMILARITY, "")
        vacated = self._vacated.pop(record.form, None)
        if vacated is not None and not state.members[vacated]:
            return UnitChoice(
                vacated, "renumbered", f"{record.source} gave the id of an equal record to another person"
            )
        return self._new_unit(new_number)

    def _new_unit(self, number: int) -> UnitChoice:
        new = f"p{number}"
        self.created.append(new)
        self.state.add_unit(new, new)
        return UnitChoice(new, "new", "")

    def _equal_unit(self, record: PreparedRecord, similar: list[SimilarRecord]) -> str | None:
        """Return the unit of an equal record without keys, if all similar records belong to the same person."""
        state = self.state
        nodes = [state.nodes[one.number] for one in similar if one.joins]
        trust = self.preset.trust
        equal = {
            node.unit
            for node in nodes
            if node.form == record.form and not node.has_keys and (node.source in trust) == (record.source in trust)
        }
        people = {state.person[node.unit] for node in nodes}
        return equal.pop() if len(equal) == len(people) == 1 and not record.keys else None

    def _join_owners(self, record: PreparedRecord, owners: list[str]) -> UnitChoice:
        state = self.state
        unit, merged = owners[0], 0
        for other in owners[1:]:
            if not state.are_distinct(unit, other):
                unit = state.merge(unit, other)
                merged += 1
        key = next(key for key in record.keys if key in state.keys)
        reason, person = "the same " + key.replace(":", " ", 1), state.person[unit]
        if merged < len(owners) - 1:
            reason += "; other keys of this record belong to a person who was reviewed as different"
        if self._contradicts(record, unit):
            reason += f", although the names or birth dates differ; if several people share it, split {person}"
        return UnitChoice(unit, f"key:{key.partition(':')[0]}", reason)

    def _contradicts(self, record: PreparedRecord, unit: str) -> bool:
        """Return whether the name or birth date of the record differs from those of the unit that has its key."""
        forms = self.state.forms(unit, MAX_COMPARED) if any(record.blocks) else []
        return bool(forms) and self._similarity.compare_groups([record.form], forms).contradicts

    def _may_be_same_person(self, form: NormalForm, before: NormalForm) -> bool:
        """Return False if the name differs and the other fields do not outweigh that.

        A typo, a new surname after a marriage or a missing part is not a different name. The check is necessary because
        some sources renumber their rows, so that a record arrives under an id that was another person's.
        """
        levels = {one.field: one.level for one in self._similarity.evidence(form, before)}
        name = levels.get("given_name", levels.get("surname", "missing"))
        return name != "different" or self._similarity.confidence(form, before) >= self.preset.ask

    def _add(self, record: PreparedRecord, number: int, choice: UnitChoice) -> None:
        """Add the record to its unit, and make it visible to the records after it in the batch."""
        state, unit = self.state, choice.unit
        state.add_node(Node(number, unit, record.source, record.record, record.form, bool(record.keys)))
        state.contributions[record.source, record.record] = StoredContribution(
            number, unit, record.fingerprint, record.at, record.form, choice.rule
        )
        for key in record.keys:
            if key not in state.keys:
                state.keys[key] = self.new_keys[key] = unit
        for block in chain(*record.blocks):
            self._batch_blocks.setdefault(block, []).append(number)

    def _link(self, record: PreparedRecord, number: int, unit: str, similar: Iterable[SimilarRecord]) -> None:
        """Link the record to similar records, and to those with a key that one of the sources is not trusted with."""
        state = self.state
        for one in similar:
            if one.joins and state.nodes[one.number].unit != unit:
                state.link(number, one.number, one.comparison.confidence)
        for claim in record.claims:
            claimed = state.members.get(state.current(state.keys[claim])) if claim in state.keys else None
            if claimed:
                state.link(number, min(claimed), CLAIMED)

    # ── similar records ─────────────────────────────────────────────────────────────────────────────────────────

    def shortlist(self, record: PreparedRecord) -> Iterator[Candidate]:
        """Keep the stored candidates, and yield those that the record is linked to or that become a question."""
        for one in self.state.candidates.get((record.source, record.record), ()):
            if self._similarity.confidence(record.form, one.form) >= self.preset.ask:
                yield one

    def _similar(self, record: PreparedRecord, number: int) -> list[SimilarRecord]:
        """Return the compared records, the most similar first."""
        if not self.preset.use_similarity or not any(record.blocks):
            return []
        state = self.state
        candidates = {one.number: one.form for one in state.candidates.get((record.source, record.record), ())}
        if self._batch_blocks:
            for one in candidates_of(record.blocks, self._batch_blocks):
                if one in state.nodes:
                    candidates[one] = state.nodes[one].form
        candidates.pop(number, None)
        found = []
        for one, form in candidates.items():
            current = state.nodes[one].form if one in state.nodes else form
            comparison = self._similarity.compare(record.form, current)
            joins = comparison.confidence >= self.preset.accept and comparison.may_merge and one in state.nodes
            found.append(SimilarRecord(one, current, comparison, joins))
        return sorted(found, key=lambda one: (-one.comparison.confidence, one.number))

    def _affected(
        self, record: PreparedRecord, stored: StoredContribution | None, similar: Iterable[SimilarRecord]
    ) -> dict[str, str]:
        """Return the units that this record may join or separate, with the person each belongs to now."""
        state = self.state
        people = {state.person_of(state.keys[key]) for key in (*record.keys, *record.claims) if key in state.keys}
        people |= {state.person[state.nodes[one.number].unit] for one in similar if one.joins}
        if stored is not None:
            people.add(state.person_of(stored.unit))
        return {unit: state.person[unit] for unit in state.units_of(people)}

    def _divide(self, affected: set[str]) -> None:
        """Divide these units, and all connected ones, into people. The oldest unit names the person."""
        state = self.state
        units = state.connected(affected)
        position = {unit: n for n, unit in enumerate(units)}
        links: dict[Pair, float] = {}
        for unit in units:
            for number in state.linked(unit):
                for other, confidence in state.links[number].items():
                    far = state.nodes[other].unit
                    if position[unit] < position[far]:
                        links[unit, far] = max(confidence, links.get((unit, far), 0.0))
        links = {pair: confidence for pair, confidence in links.items() if not self._are_distinct_units(*pair)}
        untrusted = {unit for unit in units if self._is_untrusted(unit)} if self.preset.trust else ()
        for group in partition(units, links, self._are_different_people, self.preset.accept, untrusted):
            person = min(group, key=age)
            for unit in group:
                state.set_person(unit, person)
        for unit in affected.difference(units):  # they have no records any more
            state.set_person(unit, unit)

    def _is_untrusted(self, unit: str) -> bool:
        """Return whether all records of a unit are of sources that are not trusted."""
        nodes, trust = self.state.nodes, self.preset.trust
        return all(nodes[number].source in trust for number in self.state.members[unit])

    def _are_distinct_units(self, one: str, other: str) -> bool:
        """Return whether two linked units are different people nevertheless.

        Two single records are not. But another record of a unit may contradict the link.
        """
        state = self.state
        if len(state.members[one]) == len(state.members[other]) == 1:
            return state.are_distinct(one, other)
        return self._are_different_people([one], [other])

    def _are_different_people(self, ours: Sequence[str], theirs: Sequence[str]) -> bool:
        """Return whether an operator said so, or their names, birth dates or strong keys contradict each other."""
        state = self.state
        if any(state.are_distinct(one, other) for one in ours for other in theirs):
            return True
        forms, others = ([form for unit in units for form in state.forms(unit)] for units in (ours, theirs))
        found = self._similarity.compare_groups(forms, others)
        return found.contradicts or (found.other_key and found.confidence < self.preset.ask)

    # ── the decision ────────────────────────────────────────────────────────────────────────────────────────────

    def _decision(
        self,
        record: PreparedRecord,
        number: int,
        choice: UnitChoice,
        similar: list[SimilarRecord],
        before: dict[str, str],
    ) -> Decision:
        state = self.state
        person = state.person[choice.unit]
        gone = {old for old in before.values() if old != person and state.person_of(old) == person}
        merged = tuple(sorted(gone, key=age))
        self._ask(number, similar, before)
        if choice.rule not in ("new", SIMILARITY):
            return Decision("updated", person, choice.rule, choice.reason, merged=merged)
        claims = [one for one in record.claims if one in state.keys and state.person_of(state.keys[one]) == person]
        if claims and len(state.units_of([person])) > 1:
            reason = f"the same {claims[0].replace(':', ' ', 1)}, from a source that is not trusted with it"
            return Decision("updated", person, "claim", reason, CLAIMED, merged=merged)
        joined = [one for one in similar if one.joins and state.person[state.nodes[one.number].unit] == person]
        if joined:
            evidence = self._similarity.evidence(record.form, joined[0].form)
            confidence = joined[0].comparison.confidence
            reason = describe(evidence, confidence)
            return Decision("updated", person, SIMILARITY, reason, confidence, None, evidence, merged)
        return self._new_person(record, person, similar)

    def _new_person(self, record: PreparedRecord, person: str, similar: list[SimilarRecord]) -> Decision:
        if not similar:
            reason = "no person has any of its keys"
            if self.preset.use_similarity and any(record.blocks):
                reason += ", and no record shares its name together with a date, a number or a place"
            return Decision("created", person, "new", reason)
        best = similar[0]
        candidate = self._person_of(record, best)
        evidence = self._similarity.evidence(record.form, best.form)
        confidence = self._shared_confidence(best, similar)
        reason = describe(evidence, confidence)
        if confidence >= self.preset.ask:
            return Decision("to_review", person, SIMILARITY, reason, confidence, candidate, evidence)
        reason = f"none of {len(similar)} compared records is similar enough; the best: {reason}"
        return Decision("created", person, "new", reason, 1 - confidence, candidate)

    def _person_of(self, record: PreparedRecord, one: SimilarRecord) -> str:
        state = self.state
        node = state.nodes.get(one.number)
        if node is not None:
            return state.person[node.unit]
        stored = state.candidates[record.source, record.record]
        return next(candidate.person for candidate in stored if candidate.number == one.number)

    def _shared_confidence(self, one: SimilarRecord, similar: list[SimilarRecord]) -> float:
        """Return the confidence, given that the record may also belong to the other people it is linked to."""
        if not one.joins:
            return one.comparison.confidence
        state = self.state
        odds: dict[str, float] = {}
        for each in similar:
            if each.joins:
                person = state.person[state.nodes[each.number].unit]
                odds[person] = max(odds.get(person, 0.0), odds_of(each.comparison.confidence))
        return odds[state.person[state.nodes[one.number].unit]] / (1 + sum(odds.values()))

    def _ask(self, number: int, similar: list[SimilarRecord], before: dict[str, str]) -> None:
        """Ask about similar records of other people, and about links that this record has separated."""
        state = self.state
        asked: set[str] = set()
        unit = state.nodes[number].unit
        for one in similar:
            if one.comparison.confidence < self.preset.ask or len(asked) == MAX_QUESTIONS:
                break
            node = state.nodes[one.number]
            person = state.person[node.unit]
            if person != state.person[unit] and person not in asked and not state.are_distinct(unit, node.unit):
                asked.add(person)
                self._request(number, one.number, self._shared_confidence(one, similar))
        moved = [far for far, old in before.items() if state.person.get(far, old) != old and far != unit]
        for far in moved:
            for mine in sorted(state.members.get(far, ())):
                for other, confidence in state.links.get(mine, {}).items():
                    if other != number and state.person[state.nodes[other].unit] != state.person[far]:
                        self._request(mine, other, confidence)

    def _request(self, number: int, other: int, confidence: float) -> None:
        nodes = self.state.nodes
        here, there = nodes[number], nodes[other]
        evidence = self._similarity.evidence(here.form, there.form)
        self.review_requests.append(
            ReviewRequest(here.unit, there.unit, here.source, here.record, confidence, evidence)
        )
