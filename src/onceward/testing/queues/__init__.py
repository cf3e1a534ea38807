"""The conformance kit of queues: the author of an adapter says how messages get there, and gets the whole story.

    from onceward.testing.queues import QueueConformance

    class TestMyQueue(QueueConformance):
        def queue(self, *, dead_letters, ack_deadline): return MyQueue(…)
        async def put(self, body, id): …
        async def left(self): …
        async def dead(self): …

Each test runs a real consumer on the real broker, with a store in memory. Nothing here counts seconds: it waits for
what must happen. Only "not delivered again while it is worked on" takes its time, one and a half ack deadlines.
"""

from __future__ import annotations

from .failures import TroubleStories
from .outcomes import RuleStories
from .stage import Forgetful, Seen, Shaky, Stage, noting, parked, until


class QueueConformance(RuleStories, TroubleStories):
    """Everything that an adapter must do. Subclass it and say how messages get into your broker."""


__all__ = ["Forgetful", "QueueConformance", "Seen", "Shaky", "Stage", "noting", "parked", "until"]
