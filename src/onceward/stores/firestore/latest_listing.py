"""List entities, and look up processed messages and events, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.protocol.latest import DedupMark, EntityState

from . import values
from .cache import Now
from .calls import NAME, READS_PER_CALL, order_by, start_after, where
from .latest_documents import LatestDocuments
from .values import Value


class FirestoreLatestListing:
    """Read-only queries about entities and marks."""

    def __init__(self, states: LatestDocuments, clock: Now) -> None:
        self._states = states
        self._calls = states.calls
        self._clock = clock

    async def entities(
        self, scope: str, cursor: bytes | None, limit: int, deadline: float
    ) -> tuple[list[EntityState], bytes | None]:
        """Return a page in the order of document names, which needs no extra index. Each document read is billed."""
        states = self._states
        clauses: dict[str, Any] = {"where": where(states.scope_path, "EQUAL", values.text(scope))}
        if cursor is not None:
            path = self._calls.path(states.states_in, cursor.decode())
            clauses["start_at"] = start_after(Value(reference_value=path))
        page, _ = await self._calls.query(
            states.states_in, deadline, limit=limit, order_by=[order_by((NAME,))], **clauses
        )
        found_states = [states.state(one.fields) for one in page]
        present = [one for one in found_states if one.value is not None]
        return present, page[-1].name.encode() if len(page) == limit else None

    async def marks(self, ids: Sequence[bytes], deadline: float) -> list[DedupMark | None]:
        shown: dict[bytes, DedupMark] = {}
        now = 0
        for start in range(0, len(ids), READS_PER_CALL):
            found, now = await self._states.find_marks(ids[start : start + READS_PER_CALL], deadline)
            shown |= found
        now = self._clock() or now
        return [one if one and now < one.expires_at else None for one in map(shown.get, ids)]
