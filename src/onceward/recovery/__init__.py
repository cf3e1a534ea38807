"""Recovery: finish work whose input was stored and that is not delivered again.

Read `decision.py` first (what to do with a record), then `sweeper.py` (the worker that does it).
"""

from .decision import Recovered, Recovery

__all__ = ["Recovered", "Recovery"]
