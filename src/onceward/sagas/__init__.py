"""Sagas: several steps of which, in the end, either all are done or all are undone.

Read `journal.py` first: it decides the next move, as a pure function of the journal. `flow.py` runs a saga, `api.py` is
what applications call, and `admin.py` is what operators do.
"""

from .api import AsyncSaga, Saga, SagaChoices
from .definition import Step
from .journal import Direction, Journal, JournalEntry, StepProgress
from .records import SagaEntry
from .step_context import StepContext

__all__ = [
    "AsyncSaga",
    "Direction",
    "Journal",
    "JournalEntry",
    "Saga",
    "SagaChoices",
    "SagaEntry",
    "Step",
    "StepContext",
    "StepProgress",
]
