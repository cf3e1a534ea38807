"""The latest state of entities, whatever the order in which their events arrive.

Read `protocol/latest.py` first: it is the rule itself, and every store applies it. Then read `flow.py` (from deliveries
to outcomes) and `api.py` (`once.state(…)`).
"""

from onceward.protocol.ordering import Ordering

from .api import AsyncLatestState, LatestState
from .event import Current, DerivedId, Known, StateEvent, deleted

__all__ = ["AsyncLatestState", "Current", "DerivedId", "Known", "LatestState", "Ordering", "StateEvent", "deleted"]
