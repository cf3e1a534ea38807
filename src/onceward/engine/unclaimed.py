"""While the switch is off, or the store is down: the work sees a claim, but no store does."""

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

_tokens = count(1)  # still strictly growing, for work that hands them on


class Unclaimed(Attempt):
    """Every verb succeeds, and changes nothing outside of this object."""

    def __init__(self, engine: Engine, job: Job, why: str = "disabled") -> None:
        from onceward.protocol.transitions import claim  # here, because the table otherwise comes with the stores

        super().__init__(engine, job)
        self.why = why
        self.record, _ = claim(None, self.request(), next(_tokens))
        self.ends = math.inf

    async def annotate(self, note: dict[str, str]) -> None:
        self.record = replace(self.record, note={**self.record.note, **note})

    async def complete(self, value: Any) -> Answer:  # noqa: ARG002 (nobody keeps it)
        return self._settled(RecordState.COMPLETED)

    async def complete_in(self, connection: Any, value: Any) -> None:  # noqa: ARG002 (nobody keeps it)
        self._settled(RecordState.COMPLETED)

    async def settle(self, settlement: AnySettlement, state: RecordState, sent: object = None) -> Answer:  # noqa: ARG002 (none is)  # noqa: ARG002 (nobody keeps it)
        return self._settled(state)

    async def expire_lease(self) -> None:
        self.closed = True

    def _settled(self, state: RecordState) -> Answer:
        self.settled = state
        return Answer(Verdict.OK, self.record, self.record.updated_at)
