"""What `matching` works with: a record's unit, the records it is similar to, and what has to be written."""

from __future__ import annotations

from msgspec import Struct

from .batch_state import StoredContribution
from .preparation import NormalForm, PreparedRecord
from .similarity import Comparison
from .source import Decision, Evidence


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
