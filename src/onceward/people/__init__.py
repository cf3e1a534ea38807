"""Keep one record per person, however often and from whichever source the data arrives.

`People` stores source records and decides which person each belongs to, and why. It needs the extra `people`.
Read `people.py` first (the API), then `ingest.py` (one batch) and `matching.py` (the rules).
"""

from __future__ import annotations

from . import kinds, normalise
from .fields import PERSON, Field, MergeRule
from .kinds import FieldKind, MatchLevel
from .people import JoinedPeople, People
from .person import Contribution, Person
from .policy import FIRST, LONGEST, NEWEST, UNION, MergePolicy, prefer
from .source import Action, Decision, Evidence, SourceRecord
from .trust import UNTRUSTED, Trust

__all__ = [
    "FIRST",
    "LONGEST",
    "NEWEST",
    "PERSON",
    "UNION",
    "UNTRUSTED",
    "Action",
    "Contribution",
    "Decision",
    "Evidence",
    "Field",
    "FieldKind",
    "JoinedPeople",
    "MatchLevel",
    "MergePolicy",
    "MergeRule",
    "People",
    "Person",
    "SourceRecord",
    "Trust",
    "kinds",
    "normalise",
    "prefer",
]
