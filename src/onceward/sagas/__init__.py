"""Sagas: several steps that, in the end, are either all done or all undone.

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
