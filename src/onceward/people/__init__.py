"""Identity: one record per person, however often and from wherever it arrives, and why.

`People` takes source records in and decides whose each is. Needs the extra `people`.
"""

from __future__ import annotations

from .fields import PERSON, Field
from .kinds import FieldKind, MatchLevel
from .people import People, Within
from .person import Contribution, Person
from .policy import FIRST, LONGEST, NEWEST, UNION, MergePolicy, prefer
from .source import Action, Decision, Evidence, SourceRecord

__all__ = [
    "FIRST",
    "LONGEST",
    "NEWEST",
    "PERSON",
    "UNION",
    "Action",
    "Contribution",
    "Decision",
    "Evidence",
    "Field",
    "FieldKind",
    "MatchLevel",
    "MergePolicy",
    "People",
    "Person",
    "SourceRecord",
    "Within",
    "kinds",
    "normalise",
    "prefer",
]
