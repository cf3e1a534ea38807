"""Storms: test your handler with duplicates, reordering, SIGKILL and pauses, then audit what it really did.

You write a `System`; `storm(…)` runs it, and `main(…)` is a command for it. Workers are separate processes. The storm
kills them, or stops them for longer than their lease, at random points. For POSIX systems. Read `contract.py` first,
then `run.py` and `supervisor.py`.
"""

from .contract import Audit, Effect, HandlerResult, StormEvent, StormSetting, System, Trouble
from .plan import Plan
from .program import main
from .run import Run, storm
from .score import Score

__all__ = [
    "Audit",
    "Effect",
    "HandlerResult",
    "Plan",
    "Run",
    "Score",
    "StormEvent",
    "StormSetting",
    "System",
    "Trouble",
    "main",
    "storm",
]
