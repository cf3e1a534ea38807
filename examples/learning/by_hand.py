"""The same work as it is often written by hand: every message that comes is appended. For `--unguarded`."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from msgspec import json

from examples.learning.records import Incoming, Learning
from onceward.warehouse import MergeResult, Table

BY_HAND = Table(
    name="statements_by_hand",
    columns={"row": "text", "statement_id": "text", "statement": "text"},
    key=("row",),  # of its own for every row, as if there were none
)


class ByHand(Learning):
    """Knows of no duplicates."""

    def store(self, statements: Sequence[Incoming], *, whole: bool = False) -> MergeResult:  # noqa: ARG002 (it does not care)
        self.house.prepare(BY_HAND)
        rows = [
            {"row": str(uuid4()), "statement_id": one.id, "statement": json.encode(one.told).decode()}
            for one in statements
        ]
        self.house.load(str(uuid4()), BY_HAND, rows)
        return MergeResult(["inserted" for _ in rows])
