"""Which entities there are, and what is known of a message or an event: for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onceward.protocol.latest import DedupMark, EntityState

from . import values
from .cache import Now
from .calls import LOOKS, NAME, after, ordered, where
from .latest_documents import LatestDocuments
from .values import Value


class FirestoreLatestListing:
    """Queries that only look."""

    def __init__(self, states: LatestDocuments, clock: Now) -> None:
        self._states = states
        self._calls = states.calls
        self._clock = clock

    async def entities(
        self, scope: str, cursor: bytes | None, limit: int, deadline: float
    ) -> tuple[list[EntityState], bytes | None]:
        """In the order of the documents' names, which needs no index of its own. Each that is looked at is billed."""
        states = self._states
        how: dict[str, Any] = {"where": where(states.scope_path, "EQUAL", values.text(scope))}
        if cursor is not None:
            path = self._calls.path(states.states_in, cursor.decode())
            how["start_at"] = after(Value(reference_value=path))
        page, _ = await self._calls.query(states.states_in, deadline, limit=limit, order_by=[ordered((NAME,))], **how)
        standings = [states.standing(one.fields) for one in page]
        there = [one for one in standings if one.value is not None]
        return there, page[-1].name.encode() if len(page) == limit else None

    async def marks(self, ids: Sequence[bytes], deadline: float) -> list[DedupMark | None]:
        states, shown = self._states, dict[bytes, DedupMark]()
        now = 0
        for start in range(0, len(ids), LOOKS):
            places = {states.mark(id): id for id in ids[start : start + LOOKS]}
            found, now = await self._calls.get(places, deadline)
            shown |= {places[place]: states.known(places[place], one.fields) for place, one in found.items()}
        now = self._clock() or now
        return [one if one and now < one.expires_at else None for one in map(shown.get, ids)]
