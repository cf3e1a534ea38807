from __future__ import annotations

from tests.conformance.in_memory import InMemory


class TestMemoryStore(InMemory): ...
