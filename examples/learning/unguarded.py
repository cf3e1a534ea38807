"""The same work without protection, as it is often written: every message is appended. For `--unguarded`."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from msgspec import json

from examples.learning.records import IncomingStatement, Learning
from onceward.warehouse import Merged, Table

UNGUARDED_STATEMENTS = Table(
    name="statements_by_hand",
    columns={"row": "text", "statement_id": "text", "statement": "text"},
    key=("row",),  # unique per row, so that nothing is deduplicated
)


class UnguardedLearning(Learning):
    """Stores statements without deduplication."""

    def store(self, statements: Sequence[IncomingStatement], *, whole: bool = False) -> Merged:  # noqa: ARG002 (ignored here)
        self.house.prepare(UNGUARDED_STATEMENTS)
        rows = [
            {"row": str(uuid4()), "statement_id": one.id, "statement": json.encode(one.content).decode()}
            for one in statements
        ]
        self.house.load(str(uuid4()), UNGUARDED_STATEMENTS, rows)
        return Merged(["inserted" for _ in rows])
