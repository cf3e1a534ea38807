"""What `matching` works with: a record's unit, the records it is similar to, and what has to be written."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .batch_state import StoredContribution
from .preparation import NormalForm, PreparedRecord
from .similarity import Comparison
from .source import Decision, Evidence

SPLIT: Final = "split"
"""The rule stored with a contribution that an operator moved out of a person."""

SIMILARITY: Final = "similarity"
"""The rule stored with a contribution that was assigned by similarity."""

CLAIMED: Final = 0.95
"""The confidence of a key that a source sends without being trusted with it."""

MAX_COMPARED: Final = 50
"""Records of a key that a further record with this key is compared with. Thousands may share an invented address."""

MAX_QUESTIONS: Final = 3
"""Questions that one record may cause."""


class Assignment(Struct, frozen=True):
    """A record to write: its number, its unit, and the stored contribution that it replaces (`before`)."""

    prepared: PreparedRecord
    decision: Decision
    unit: str
    number: int
    before: StoredContribution | None


class ReviewRequest(Struct, frozen=True):
    """Two units that may be one person."""

    one: str
    other: str
    source: str
    record: str
    confidence: float
    evidence: tuple[Evidence, ...]


class UnitChoice(Struct, frozen=True):
    """The unit of a record, and the rule that chose it."""

    unit: str
    rule: str
    reason: str


class SimilarRecord(Struct, frozen=True):
    """A record that was compared. `joins`: similar enough for a link."""

    number: int
    form: NormalForm
    comparison: Comparison
    joins: bool


def skip_unchanged(person: str) -> Decision:
    return Decision("skipped", person, "unchanged", "this record is already stored and unchanged")
