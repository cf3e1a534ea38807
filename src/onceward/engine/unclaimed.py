"""A claim without a store: for `onceward.testing.disabled`, and for sagas that run while the store is down."""

from __future__ import annotations

import math
from itertools import count
from typing import Any

from msgspec.structs import replace

from onceward.protocol.record import RecordState
from onceward.protocol.requests import Answer, AnySettlement, Verdict

from .attempt import Attempt
from .engine import Engine
from .job import Job

_tokens = count(1)  # strictly growing, as with a store, for work that passes them on


class Unclaimed(Attempt):
    """An attempt whose verbs all succeed and change nothing outside this object."""

    def __init__(self, engine: Engine, job: Job, why: str = "disabled") -> None:
        from onceward.protocol.transitions import claim  # imported here: usually only stores need the table

        super().__init__(engine, job)
        self.why = why
        self.record, _ = claim(None, self.request(), next(_tokens))
        self.ends = math.inf

    async def annotate(self, note: dict[str, str]) -> None:
        self.record = replace(self.record, note={**self.record.note, **note})

    async def complete(self, value: Any) -> Answer:  # noqa: ARG002 (not stored)
        return self._settled(RecordState.COMPLETED)

    async def complete_in(self, connection: Any, value: Any) -> None:  # noqa: ARG002 (not stored)
        self._settled(RecordState.COMPLETED)

    async def settle(self, settlement: AnySettlement, state: RecordState, sent: object = None) -> Answer:  # noqa: ARG002 (not stored)
        return self._settled(state)

    async def expire_lease(self) -> None:
        self.closed = True

    def _settled(self, state: RecordState) -> Answer:
        self.settled = state
        return Answer(Verdict.OK, self.record, self.record.updated_at)
