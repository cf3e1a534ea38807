"""Schedules: each slot of a cron pattern runs once across all machines.

Read `due.py` first: it decides what is due, as a pure function. `runner.py` is the loop that starts it, `slot_run.py`
runs one slot, `api.py` is what applications call.
"""

from .api import AsyncScheduled, Scheduled
from .definition import Missed, Ran

__all__ = ["AsyncScheduled", "Missed", "Ran", "Scheduled"]
