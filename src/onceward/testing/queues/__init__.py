"""The conformance kit for queue adapters. Implement how to access your broker, and inherit all tests.

    from onceward.testing.queues import QueueConformance

    class TestMyQueue(QueueConformance):
        def queue(self, *, dead_letters, ack_deadline): return MyQueue(…)
        async def put(self, body, id): …
        async def remaining(self): …
        async def dead_letters(self): …

Each test runs a real consumer on the real broker, with a store in memory. The tests wait for conditions instead of
sleeping. Only the test that work longer than the ack deadline is not redelivered takes one and a half ack deadlines.
"""

from __future__ import annotations

from .base import QueueTestBase
from .failures import FailureTests
from .outcomes import SettlementTests


class QueueConformance(SettlementTests, FailureTests):
    """All tests of an adapter. Subclass it and implement the methods of `QueueTestBase`."""


__all__ = ["QueueConformance", "QueueTestBase"]
