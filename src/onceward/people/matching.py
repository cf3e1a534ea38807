"""Decide which person a source record belongs to.

This module does no I/O. It reads the `BatchState`, and collects what has to be written. The first rule that applies
decides:

1. The record is already stored and unchanged, or a newer version of it is stored: skip it.
2. An operator moved this record out of another person (a split), and it may still describe the same person: keep it
   there.
3. A strong key of the record belongs to a person: assign the record to that person. If its keys belong to several
   people, merge these, unless an operator said that they are different people.
4. The record is already stored under the same id, and it may still describe the same person: keep it there.
5. A person is similar enough (confidence of at least `accept`): assign the record to that person. If the confidence is
   between `ask` and `accept`, create a new person and a question for `onceward review`. Otherwise create a new person.
   `People(similarity=False)` omits this rule: people are then identified by their keys only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from .batch_state import BatchState, Candidate, StoredContribution
from .blocking import best_candidates
from .fields import Preset
from .preparation import NormalForm, PreparedRecord
from .similarity import Similarity
from .source import Decision, Evidence

SPLIT: Final = "split"
"""The rule stored with a contribution that an operator moved out of a person."""

SIMILARITY: Final = "similarity"
"""The rule stored with a contribution that was assigned by similarity."""

RIVAL_ODDS_RATIO: Final = 4
"""The best match is ambiguous if its odds are less than this many times those of another person."""

MIN_CANDIDATE_CONFIDENCE: Final = 0.0001
"""Candidates below this confidence are dropped before they are compared with all records of their person."""


class Assignment(Struct, frozen=True):
    """A record to write: its number, its person, and the stored contribution that it replaces (`before`)."""

    prepared: PreparedRecord
    decision: Decision
    person: str
    number: int
    before: StoredContribution | None


class ReviewRequest(Struct, frozen=True):
    """A pair of people that may be one person."""

    new: str
    candidate: str
    prepared: PreparedRecord
    confidence: float
    evidence: tuple[Evidence, ...]


class Match(Struct, frozen=True):
    """A person who is similar to the record."""

    person: str
    confidence: float
    number: int


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
        self._strong = [n for n, slot in enumerate(preset.slots) if slot.strong]
        self._batch_blocks: dict[int, list[int]] = {}
        self._batch_candidates: dict[int, Candidate] = {}

    def decide(self, record: PreparedRecord, new_number: int) -> Decision:
        """Decide which person the record belongs to.

        `new_number` is an unused number. A new record gets it, and so does a person that is created.
        """
        state = self.state
        stored = state.contributions.get((record.source, record.record))
        if stored is not None:
            stored.person = state.current(stored.person)
            if stored.fingerprint == record.fingerprint:
                return skip_unchanged(stored.person)
            if record.at is not None and stored.at is not None and record.at < stored.at:
                return Decision("skipped", stored.person, "older", "a newer version of this record is already stored")
            if stored.rule == SPLIT and self._may_be_same_person(record.form, stored.form):
                reason = "an operator moved this record here from another person"
                return self._assign(record, new_number, stored, Decision("updated", stored.person, SPLIT, reason))
        owners = list(dict.fromkeys(state.current(state.keys[key]) for key in record.keys if key in state.keys))
        if owners:
            return self._by_key(record, new_number, stored, owners)
        if stored is not None and self._may_be_same_person(record.form, stored.form):
            reason = f"{record.source} already sent a record with this id"
            return self._assign(record, new_number, stored, Decision("updated", stored.person, "same_record", reason))
        return self._by_similarity(record, new_number, stored)

    # ── rules ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _by_key(
        self, record: PreparedRecord, new_number: int, stored: StoredContribution | None, owners: list[str]
    ) -> Decision:
        state = self.state
        person = owners[0]
        merged = []
        for other in owners[1:]:
            if not state.are_distinct(person, other):
                state.merge(other, person)  # immediately: people distinct from `other` are now distinct from `person`
                merged.append(other)
        key = next(key for key in record.keys if key in state.keys)
        reason = "the same " + key.replace(":", " ", 1)
        if len(merged) < len(owners) - 1:
            reason += "; other keys of this record belong to a person who was reviewed as different"
        decision = Decision("updated", person, f"key:{key.partition(':')[0]}", reason, merged=tuple(merged))
        return self._assign(record, new_number, stored, decision)

    def _may_be_same_person(self, form: NormalForm, before: NormalForm) -> bool:
        """Return False if the name differs and the other fields do not outweigh that.

        A typo, a new surname after a marriage or a missing part is not a different name. The check is necessary because
        some sources renumber their rows, so that a record arrives under an id that was another person's.
        """
        levels = {one.field: one.level for one in self._similarity.evidence(form, (before,))}
        name = levels.get("given_name", levels.get("surname", "missing"))
        return name != "different" or self._similarity.confidence(form, (before,)) >= self.preset.ask

    def _by_similarity(self, record: PreparedRecord, new_number: int, stored: StoredContribution | None) -> Decision:
        use_similarity = self.preset.use_similarity
        ranked = self._ranked(record, new_number if stored is None else stored.number) if use_similarity else []
        best = ranked[0] if ranked else None
        if best is None or best.confidence < self.preset.ask:
            reason = "no similar person" if use_similarity and any(record.blocks) else "no person has any of its keys"
            if best is None:
                return self._create(record, new_number, stored, Decision("created", None, "new", reason))
            dissimilar = Decision("created", None, "new", reason, 1 - best.confidence, best.person)
            return self._create(record, new_number, stored, dissimilar)
        evidence = self._similarity.evidence(record.form, self.state.forms(best.person))
        reason = _describe(evidence, best.confidence)
        if best.confidence >= self.preset.accept:
            person, merged = self._join_candidates(record, ranked)
            decision = Decision("updated", person, SIMILARITY, reason, best.confidence, None, evidence, merged)
            return self._assign(record, new_number, stored, decision)
        uncertain = Decision("to_review", None, SIMILARITY, reason, best.confidence, best.person, evidence)
        decision = self._create(record, new_number, stored, uncertain)
        if decision.person is not None:
            self.review_requests.append(ReviewRequest(decision.person, best.person, record, best.confidence, evidence))
        return decision

    def _join_candidates(self, record: PreparedRecord, ranked: list[Match]) -> tuple[str, tuple[str, ...]]:
        """Return the person of the record, and the people merged into that person because of this record.

        If this record had arrived first, all of them would have joined it. The order of input should matter as little
        as possible.
        """
        state = self.state
        person, merged = ranked[0].person, []
        for other in ranked[1:]:
            if other.confidence < self.preset.ask:
                break
            forms = [*state.forms(person), record.form]
            lowest = min(self._similarity.confidence(form, forms) for form in state.forms(other.person))
            if lowest >= self.preset.accept and not state.are_distinct(person, other.person):
                loser = max(person, other.person, key=state.first_number)
                person = min(person, other.person, key=state.first_number)
                state.merge(loser, person)
                merged.append(loser)
        return person, tuple(merged)

    def shortlist(self, record: PreparedRecord) -> list[Candidate]:
        """Keep and return the candidates whose own record is not negligibly similar to this one."""
        name = record.source, record.record
        found = [
            candidate
            for candidate in self.state.candidates.get(name, ())
            if self._similarity.confidence(record.form, (candidate.form,)) > MIN_CANDIDATE_CONFIDENCE
        ]
        self.state.candidates[name] = found
        return found

    def _ranked(self, record: PreparedRecord, number: int) -> list[Match]:
        """Return similar people, best match first. Namesakes that are different people reduce the best confidence."""
        state = self.state
        candidates = list(state.candidates.get((record.source, record.record), ()))
        if self._batch_blocks and any(record.blocks):
            candidates += (self._batch_candidates[one] for one in best_candidates(record.blocks, self._batch_blocks))
        found: dict[str, Match] = {}
        for one in candidates:
            person = state.current(one.person)
            if person not in found and one.number != number:
                confidence = self._similarity.confidence(record.form, state.forms(person))
                if confidence > MIN_CANDIDATE_CONFIDENCE:
                    found[person] = Match(person, confidence, one.number)
        ranked = sorted(found.values(), key=lambda match: (-match.confidence, match.number))
        if len(ranked) > 1 and ranked[0].confidence >= self.preset.ask:
            best = ranked[0]
            rivals = sum(one.confidence for one in ranked[1:] if self._are_different_people(record, best, one))
            ranked[0] = Match(best.person, best.confidence / (1 + rivals), best.number)
        return ranked

    def _are_different_people(self, record: PreparedRecord, best: Match, other: Match) -> bool:
        """Return whether the record can belong to only one of the two.

        That is so if an operator said that they are different, or if each has a strong key of its own. Many people have
        the same name; a record without their keys does not show which of them it describes.
        """
        state = self.state
        if state.are_distinct(best.person, other.person):
            return True
        forms, others = state.forms(best.person), state.forms(other.person)
        if not _is_as_good(other, best) or not self._have_different_keys(forms, others):
            return False
        forms = [*forms, record.form]
        return all(self._similarity.confidence(form, forms) < self.preset.ask for form in others)

    def _have_different_keys(self, here: Sequence[NormalForm], there: Sequence[NormalForm]) -> bool:
        for n in self._strong:
            ours, theirs = ({form[n] for form in forms if form[n]} for forms in (here, there))
            if ours and theirs and ours.isdisjoint(theirs):
                return True
        return False

    # ── recording the decision ──────────────────────────────────────────────────────────────────────────────────

    def _create(
        self, record: PreparedRecord, new_number: int, stored: StoredContribution | None, decision: Decision
    ) -> Decision:
        """Create a person, named after the new number: the record's own number may already name another person."""
        person = f"p{new_number}"
        self.created.append(person)
        return self._assign(record, new_number, stored, replace(decision, person=person))

    def _assign(
        self, record: PreparedRecord, new_number: int, stored: StoredContribution | None, decision: Decision
    ) -> Decision:
        """Collect the record for writing, and make it visible to the records after it in the batch."""
        person = decision.person or ""
        number = new_number if stored is None else stored.number
        state = self.state
        earlier = self.assignments.get(number)
        self.assignments[number] = Assignment(
            record, decision, person, number, stored if earlier is None else earlier.before
        )
        state.contributions[record.source, record.record] = StoredContribution(
            number, person, record.fingerprint, record.at, record.form, decision.rule
        )
        for key in record.keys:
            if key not in state.keys:
                state.keys[key] = self.new_keys[key] = person
        if stored is not None:
            state.drop_form(stored.person, number)
        state.add_form(person, number, record.form)
        self._batch_candidates[number] = Candidate(number, person, record.form)
        for block in chain(*record.blocks):
            self._batch_blocks.setdefault(block, []).append(number)
        return decision


def _is_as_good(other: Match, best: Match) -> bool:
    return RIVAL_ODDS_RATIO * other.confidence * (1 - best.confidence) >= best.confidence * (1 - other.confidence)


def skip_unchanged(person: str) -> Decision:
    return Decision("skipped", person, "unchanged", "this record is already stored and unchanged")


def _describe(evidence: tuple[Evidence, ...], confidence: float) -> str:
    """Return, for example, `given_name, surname, city equal; street different: 0.97`."""
    levels: dict[str, list[str]] = {}
    for one in evidence:
        levels.setdefault(one.level, []).append(one.field)
    parts = [f"{', '.join(names)} {level}" for level, names in levels.items()]
    return f"{'; '.join(parts)}: {confidence:.2f}"
