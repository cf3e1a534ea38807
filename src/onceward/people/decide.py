"""The decision about one record: whose is it? Pure: it knows what it was given, and notes what follows.

1. It came before, unchanged: skipped. An older version of what is known: skipped.
2. Somebody took it out of another person, and it may well be of the same person as then: theirs, still.
3. A strong key leads to somebody: theirs. If its keys lead to several, these are one person, and merged, unless
   somebody has said that they are not.
4. It came before under the same id, and may well be of the same person: theirs, still.
5. Somebody is so much like it that the confidence is high enough: theirs. A little less: a new person, and a question
   for `onceward review`. Otherwise: a new person. Left out where people are told by their keys alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from .blocking import closest
from .fields import Preset
from .known import Known, Near, Stored
from .prepare import Form, Prepared
from .similarity import Similarity
from .source import Decision, Evidence

SPLIT: Final = "split"
"""The rule of a contribution that somebody took out of a person."""

RIVAL: Final = 4
"""By how much the odds of the best one must be better than another's, to be told from that one."""

NEGLIGIBLE: Final = 0.0001
"""What one record alone must be like for a person to be looked at with all of them."""


class Taken(Struct, frozen=True):
    """A record that is to be written: under which number, for whom; `before` is what it replaces."""

    prepared: Prepared
    decision: Decision
    person: str
    number: int
    before: Stored | None


class Asked(Struct, frozen=True):
    """A pair that may be one person."""

    new: str
    candidate: str
    prepared: Prepared
    confidence: float
    evidence: tuple[Evidence, ...]


class Match(Struct, frozen=True):
    """Somebody who is like the record."""

    person: str
    confidence: float
    number: int


class Decider:
    """Decides record by record; the rest is what is to be written."""

    def __init__(self, preset: Preset, likeness: Similarity, known: Known) -> None:
        self.preset = preset
        self._likeness = likeness
        self.known = known
        self.taken: dict[int, Taken] = {}
        self.created: list[str] = []
        self.new_keys: dict[str, str] = {}
        self.asked: list[Asked] = []
        self._strong = [n for n, slot in enumerate(preset.slots) if slot.strong]
        self._of_batch: dict[int, list[int]] = {}
        self._fresh: dict[int, Near] = {}

    def decide(self, record: Prepared, fresh: int) -> Decision:
        """`fresh` is a number that nobody has: the record's if it is new, and the person's if one is created."""
        known = self.known
        stored = known.contributions.get((record.source, record.record))
        if stored is not None:
            stored.person = known.current(stored.person)
            if stored.fingerprint == record.fingerprint:
                return unchanged(stored.person)
            if record.at is not None and stored.at is not None and record.at < stored.at:
                return Decision("skipped", stored.person, "older", "a newer version of it is known")
            if stored.rule == SPLIT and self._may_still_be(record.form, stored.form):
                said = Decision("updated", stored.person, SPLIT, "somebody said that it is not the other's")
                return self._take(record, fresh, stored, said)
        owners = list(dict.fromkeys(known.current(known.keys[key]) for key in record.keys if key in known.keys))
        if owners:
            return self._by_key(record, fresh, stored, owners)
        if stored is not None and self._may_still_be(record.form, stored.form):
            reason = f"{record.source} had it under the same id before"
            return self._take(record, fresh, stored, Decision("updated", stored.person, "same_record", reason))
        return self._by_likeness(record, fresh, stored)

    # ── rules ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _by_key(self, record: Prepared, fresh: int, stored: Stored | None, owners: list[str]) -> Decision:
        known = self.known
        person = owners[0]
        merged = []
        for other in owners[1:]:
            if not known.are_apart(person, other):
                known.merge(other, person)  # at once: whoever is apart from that one is apart from this one, too
                merged.append(other)
        key = next(key for key in record.keys if key in known.keys)
        reason = "the same " + key.replace(":", " ", 1)
        if len(merged) < len(owners) - 1:
            reason += "; other keys of it lead to somebody who was said to be another person"
        decision = Decision("updated", person, f"key:{key.partition(':')[0]}", reason, merged=tuple(merged))
        return self._take(record, fresh, stored, decision)

    def _may_still_be(self, form: Form, before: Form) -> bool:
        """Unless its name is another one (a slip, a marriage, a missing part do not count), and the rest says so, too.

        Sources that number their rows anew give somebody else's id to a record.
        """
        levels = {one.field: one.level for one in self._likeness.evidence(form, (before,))}
        name = levels.get("given_name", levels.get("surname", "missing"))
        return name != "different" or self._likeness.confidence(form, (before,)) >= self.preset.ask

    def _by_likeness(self, record: Prepared, fresh: int, stored: Stored | None) -> Decision:
        by_likeness = self.preset.likeness
        ranked = self._ranked(record, fresh if stored is None else stored.number) if by_likeness else []
        best = ranked[0] if ranked else None
        if best is None or best.confidence < self.preset.ask:
            reason = "nobody is much like it" if by_likeness and any(record.blocks) else "nobody has its keys"
            if best is None:
                return self._create(record, fresh, stored, Decision("created", None, "new", reason))
            unlike = Decision("created", None, "new", reason, 1 - best.confidence, best.person)
            return self._create(record, fresh, stored, unlike)
        evidence = self._likeness.evidence(record.form, self.known.forms(best.person))
        reason = _told(evidence, best.confidence)
        if best.confidence >= self.preset.accept:
            person, merged = self._bridged(record, ranked)
            decision = Decision("updated", person, "likeness", reason, best.confidence, None, evidence, merged)
            return self._take(record, fresh, stored, decision)
        doubt = Decision("to_review", None, "likeness", reason, best.confidence, best.person, evidence)
        decision = self._create(record, fresh, stored, doubt)
        if decision.person is not None:
            self.asked.append(Asked(decision.person, best.person, record, best.confidence, evidence))
        return decision

    def _bridged(self, record: Prepared, ranked: list[Match]) -> tuple[str, tuple[str, ...]]:
        """Whose it is; and who else turns out to be that person, now that this record is known.

        Had it come first, all of them would have joined it: the order of input is to matter as little as possible.
        """
        known = self.known
        person, merged = ranked[0].person, []
        for other in ranked[1:]:
            if other.confidence < self.preset.ask:
                break
            forms = [*known.forms(person), record.form]
            sure = min(self._likeness.confidence(form, forms) for form in known.forms(other.person))
            if sure >= self.preset.accept and not known.are_apart(person, other.person):
                loser = max(person, other.person, key=known.since)
                person = min(person, other.person, key=known.since)
                known.merge(loser, person)
                merged.append(loser)
        return person, tuple(merged)

    def shortlist(self, record: Prepared) -> list[Near]:
        """Of those who are near, the people of whom one record alone is like this one."""
        name = record.source, record.record
        found = [
            near
            for near in self.known.near.get(name, ())
            if self._likeness.confidence(record.form, (near.form,)) > NEGLIGIBLE
        ]
        self.known.near[name] = found
        return found

    def _ranked(self, record: Prepared, number: int) -> list[Match]:
        """Who is like it, the likest first; of two people of one name who are two, neither is sure."""
        known = self.known
        near = list(known.near.get((record.source, record.record), ()))
        if self._of_batch and any(record.blocks):
            near += (self._fresh[one] for one in closest(record.blocks, self._of_batch))
        found: dict[str, Match] = {}
        for one in near:
            person = known.current(one.person)
            if person not in found and one.number != number:
                confidence = self._likeness.confidence(record.form, known.forms(person))
                if confidence > NEGLIGIBLE:
                    found[person] = Match(person, confidence, one.number)
        ranked = sorted(found.values(), key=lambda match: (-match.confidence, match.number))
        if len(ranked) > 1 and ranked[0].confidence >= self.preset.ask:
            best = ranked[0]
            rivals = sum(one.confidence for one in ranked[1:] if self._are_two(record, best, one))
            ranked[0] = Match(best.person, best.confidence / (1 + rivals), best.number)
        return ranked

    def _are_two(self, record: Prepared, best: Match, other: Match) -> bool:
        """Whether it can be of one of them only: somebody said so, or each has a strong key of their own.

        Many are called alike; by a record without their keys nobody can tell which of them it is.
        """
        known = self.known
        if known.are_apart(best.person, other.person):
            return True
        forms, others = known.forms(best.person), known.forms(other.person)
        if not _is_as_good(other, best) or not self._have_other_keys(forms, others):
            return False
        forms = [*forms, record.form]
        return all(self._likeness.confidence(form, forms) < self.preset.ask for form in others)

    def _have_other_keys(self, here: Sequence[Form], there: Sequence[Form]) -> bool:
        for n in self._strong:
            mine, theirs = ({form[n] for form in forms if form[n]} for forms in (here, there))
            if mine and theirs and mine.isdisjoint(theirs):
                return True
        return False

    # ── what follows ────────────────────────────────────────────────────────────────────────────────────────────

    def _create(self, record: Prepared, fresh: int, stored: Stored | None, decision: Decision) -> Decision:
        """Not named after the record's own number: that may have been somebody else's before."""
        person = f"p{fresh}"
        self.created.append(person)
        return self._take(record, fresh, stored, replace(decision, person=person))

    def _take(self, record: Prepared, fresh: int, stored: Stored | None, decision: Decision) -> Decision:
        """Noted for writing, and known to the records behind it in the batch."""
        person = decision.person or ""
        number = fresh if stored is None else stored.number
        known = self.known
        first = self.taken.get(number)
        self.taken[number] = Taken(record, decision, person, number, stored if first is None else first.before)
        known.contributions[record.source, record.record] = Stored(
            number, person, record.fingerprint, record.at, record.form, decision.rule
        )
        for key in record.keys:
            if key not in known.keys:
                known.keys[key] = self.new_keys[key] = person
        if stored is not None:
            known.drop_form(stored.person, number)
        known.add_form(person, number, record.form)
        self._fresh[number] = Near(number, person, record.form)
        for block in chain(*record.blocks):
            self._of_batch.setdefault(block, []).append(number)
        return decision


def _is_as_good(other: Match, best: Match) -> bool:
    return RIVAL * other.confidence * (1 - best.confidence) >= best.confidence * (1 - other.confidence)


def unchanged(person: str) -> Decision:
    return Decision("skipped", person, "unchanged", "it came before, and is the same")


def _told(evidence: tuple[Evidence, ...], confidence: float) -> str:
    """`given_name, surname and city equal, street different: 0.97`."""
    levels: dict[str, list[str]] = {}
    for one in evidence:
        levels.setdefault(one.level, []).append(one.field)
    parts = [f"{', '.join(names)} {level}" for level, names in levels.items()]
    return f"{'; '.join(parts)}: {confidence:.2f}"
