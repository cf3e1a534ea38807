"""`once.imap`: like `once.map`, but each outcome is returned as soon as it is known.

Items are read in small chunks. Per chunk: claim the keys in one call, run those that we own, then wait for the keys
that other workers own. Closing the stream releases the keys whose work has not begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from onceward.protocol.outcome import Outcome

from .abandon import abandon
from .attempt import WAITING, Attempt
from .engine import Engine
from .job import Job
from .many import Outcomes, claimed_outcome, distinct_jobs, failed_outcome, outcome_of, waited_outcome
from .runner import claim

LOOK_AHEAD: Final = 32
"""How many keys are claimed at most before the first of them is done. They are held while the caller uses outcomes."""

Item = TypeVar("Item")
T = TypeVar("T")


class ItemOutcome(Struct, Generic[Item, T], frozen=True, kw_only=True):
    """What happened to one `item` of `once.imap`: its `outcome`.

    `index` is its position in the input. `done` is how many outcomes there are so far, including this one, of `total`;
    `total` is None if the length of the input is not known.
    """

    item: Item
    outcome: Outcome[T]
    index: int
    done: int
    total: int | None


class Closed(Exception):
    """The caller has closed the stream before its end. It is passed to `abandon`, and never raised."""


Chunk = Sequence[tuple[Any, Job | Exception]]
Step = Callable[[], Awaitable[Outcome[Any]]]


class OutcomeStream:
    """The outcomes of a sequence of items. `read` returns the next chunk of items and jobs; an empty one is the end."""

    def __init__(self, engine: Engine, read: Callable[[], Awaitable[Chunk]], total: int | None) -> None:
        self._engine = engine
        self._read = read
        self._total = total
        self._done = 0
        self._start = 0  # the index of the first item of this chunk
        self._chunk: Chunk = ()
        self._attempts: list[Attempt] = []
        self._steps: deque[tuple[int, Step]] = deque()

    async def next(self) -> ItemOutcome[Any, Any] | None:
        """Return the next outcome, or None at the end."""
        try:
            if not self._steps:
                await self._next_chunk()
            if not self._steps:
                return None
            position, step = self._steps.popleft()
            outcome = await step()
        except BaseException as error:
            await abandon(self._attempts, error)
            raise
        self._done += 1
        return ItemOutcome(
            item=self._chunk[position][0],
            outcome=outcome,
            index=self._start + position,
            done=self._done,
            total=self._total,
        )

    async def close(self) -> None:
        """Release the keys whose work has not begun."""
        self._steps.clear()
        await abandon(self._attempts, Closed())

    async def _next_chunk(self) -> None:
        """Claim the keys of the next chunk, and decide in which order its outcomes will be known."""
        self._start += len(self._chunk)
        self._chunk, self._attempts = await self._read(), []
        jobs = [job for _, job in self._chunk]
        firsts = distinct_jobs(self._engine, jobs)
        self._attempts = [Attempt(self._engine, job) for job in firsts.values()]
        refusals = await claim(self._engine, self._attempts) if self._attempts else []
        claimed = {id(one.job): (one, refusal) for one, refusal in zip(self._attempts, refusals, strict=True)}
        outcomes: Outcomes = {}
        now: list[tuple[int, Step]] = []
        waiting: list[tuple[int, Step]] = []
        repeated: list[tuple[int, Step]] = []
        for position, job in enumerate(jobs):
            if isinstance(job, Exception):
                now.append((position, partial(_failed, job)))
            elif id(job) not in claimed:
                step = partial(outcome_of, self._engine, job, firsts, outcomes)
                (repeated if job.key.id in firsts else now).append((position, step))
            else:
                attempt, refusal = claimed[id(job)]
                if attempt.state is WAITING:
                    waiting.append((position, partial(waited_outcome, attempt, outcomes)))
                else:
                    now.append((position, partial(claimed_outcome, attempt, refusal, outcomes)))
        self._steps = deque([*now, *waiting, *repeated])


async def _failed(error: Exception) -> Outcome[Any]:
    return failed_outcome("", error)
