"""Storms: your handler under duplicates, reordering, SIGKILL and pauses, then an audit of what it really did.

`System` is what you write, `storm(…)` runs it, `main(…)` is a command for it. Workers are processes of their own; they
are killed, or stopped for longer than their lease, wherever they happen to be. For POSIX systems.
"""

from .contract import Answer, Audit, Effect, Event, Setting, System
from .errors import Trouble
from .plan import Plan
from .program import main
from .run import Run, nobody, storm
from .score import Score

__all__ = [
    "Answer",
    "Audit",
    "Effect",
    "Event",
    "Plan",
    "Run",
    "Score",
    "Setting",
    "System",
    "Trouble",
    "main",
    "nobody",
    "storm",
]
