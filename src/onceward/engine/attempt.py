"""An attempt: one delivery of work in this process, from its claim to its end.

`protocol/transitions.py` has the states of the record, which is in the store. These are the states of the attempt:

    NEW          nothing has been sent
    CLAIMING     the claim has been sent
    WAITING      another worker owns the key, and this attempt waits for it
    REFUSED      replayed, running, mismatch, failed or parked; or an enclosing call holds the key
    OWNED        this attempt owns the key, and the work has not started
    VERIFYING    `verify` checks whether an effect has happened: of a crashed attempt, or of this one after it raised
    RUNNING      the work runs; a `with` block is an attempt that stays here until the block ends
    SETTLING     the result, failure or release has been sent
    SETTLED      the store confirmed it
    LOST         another worker took over
    UNKNOWN      the store did not answer a claim or a settlement, or its answer is inconclusive
    ABANDONED    interrupted: released if possible, otherwise the lease expires
    UNPROTECTED  the work runs without a claim, as declared: store down, no key, test mode, or the mode of the client

Only the flow, or `claim.complete` inside the work, moves the attempt. The heartbeat thread does not move it: it sets
`lost` and `overdue`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from enum import StrEnum
from itertools import count
from typing import Any, Final, NoReturn, Protocol, Self, TypeVar
from weakref import ref

from onceward.errors import LeaseLost, LeaseOverdue
from onceward.keys.key import Key, derived_key
from onceward.protocol.capabilities import JoinedStore
from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import ClaimRequest, Renewal
from onceward.protocol.runtime import Canceller

from .engine import Engine
from .job import Job

T = TypeVar("T")


class AttemptState(StrEnum):
    """The states of an attempt, as listed at the top of this file."""

    NEW = "new"
    CLAIMING = "claiming"
    WAITING = "waiting"
    REFUSED = "refused"
    OWNED = "owned"
    VERIFYING = "verifying"
    RUNNING = "running"
    SETTLING = "settling"
    SETTLED = "settled"
    LOST = "lost"
    UNKNOWN = "unknown"
    ABANDONED = "abandoned"
    UNPROTECTED = "unprotected"


NEW, CLAIMING, WAITING, REFUSED, OWNED, VERIFYING, RUNNING, SETTLING, SETTLED, LOST, UNKNOWN, ABANDONED, UNPROTECTED = (
    AttemptState
)

MOVES: Final[dict[AttemptState, frozenset[AttemptState]]] = {
    NEW: frozenset({CLAIMING, REFUSED, ABANDONED, UNPROTECTED}),  # refused: an enclosing call holds the key
    CLAIMING: frozenset({WAITING, REFUSED, OWNED, UNKNOWN, ABANDONED}),
    WAITING: frozenset({CLAIMING, ABANDONED}),
    REFUSED: frozenset({UNPROTECTED}),  # only in observe mode, which never skips
    OWNED: frozenset({VERIFYING, RUNNING, SETTLING, ABANDONED}),
    VERIFYING: frozenset({RUNNING, SETTLING, ABANDONED}),
    RUNNING: frozenset({VERIFYING, SETTLING, LOST, ABANDONED}),
    SETTLING: frozenset({SETTLED, LOST, UNKNOWN}),
    SETTLED: frozenset({SETTLING}),  # the work may complete its claim again, with an equal result
    LOST: frozenset(),
    UNKNOWN: frozenset({SETTLING, UNPROTECTED}),  # complete again; or run unprotected, because the store is down
    ABANDONED: frozenset(),
    UNPROTECTED: frozenset(),
}
"""The legal moves. Any other move is a bug in Onceward."""

NOT_BEGUN: Final = frozenset({NEW, CLAIMING, WAITING, OWNED, VERIFYING})
"""The work has not begun in this attempt, so its key may be released (VERIFYING: only before the work)."""

ENDED: Final = frozenset({REFUSED, SETTLED, LOST, UNKNOWN, ABANDONED})
"""Nothing is left to do for the key, and its lease is not renewed. The work may still repeat its completion."""

NO_RESULT: Final = object()
"""The work has not returned."""


class IllegalMove(AssertionError):
    """A bug in Onceward: the attempt cannot move from its state to the requested one."""


class CurrentStep(Protocol):
    """A step of a saga: a part of the work that has its own derived keys and is retried separately."""

    def derived_key(self, step: str) -> str: ...


class Integration(Protocol):
    """A component that runs the work of an attempt and completes its claim itself, such as the HTTP middleware."""

    def refuse_completion(self, key: str) -> NoReturn:
        """Raise because the work tried to complete the claim."""
        ...

    def run_blocking(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call of the engine from sync code, which may be in another thread than the event loop."""
        ...

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call of the engine from a coroutine, even if the engine blocks."""
        ...


class Attempt:
    """One delivery of work in this process. `record` is set once the attempt is OWNED or UNPROTECTED."""

    __slots__ = (
        *("__weakref__", "_reference", "asked_again", "canceller", "ends", "engine", "heartbeat", "inherited"),
        *("integration", "job", "joined", "key", "lease", "lost", "nonce", "note_at_end", "on_lost", "outer"),
        *("overdue", "record", "renew_at", "result", "retry_until", "settled_as", "state", "step", "unprotected"),
    )
    record: Record

    def __init__(self, engine: Engine, job: Job) -> None:
        self.engine = engine
        self.job = job
        self.key: Key = job.key
        self.state: AttemptState = NEW
        self.settled_as: RecordState | None = None  # the state of the record after settling
        self.result: Any = NO_RESULT
        self.note_at_end = job.at_end  # written to the note on completion
        self.joined: JoinedStore | None = None  # the caller's transaction in which the result was written
        self.outer: Attempt | None = None
        self.step: CurrentStep | None = None  # the saga step that is running
        self.integration: Integration | None = None  # completes the claim instead of the work
        self.canceller: Canceller | None = None  # must be notified when the work ends
        self.retry_until = math.inf  # when to stop repeating a settlement, on our own clock
        self.asked_again = False  # the store did not answer the first settlement: a later answer may be about it
        self.unprotected = ""  # why an UNPROTECTED attempt has no claim
        self._reference: ref[Attempt] | None = None  # set while it is the current attempt
        # The lease, which the heartbeat renews (`lease.py`).
        self.nonce = b""
        self.lease = job.policy.lease
        self.heartbeat = job.policy.heartbeat
        self.renew_at = self.ends = 0.0
        self.lost = self.overdue = self.inherited = False
        self.on_lost: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"<Attempt {self.key.text}: {self.state}>"

    def move(self, state: AttemptState) -> None:
        """Move to this state. Raise IllegalMove if the move is not legal."""
        if state not in MOVES[self.state]:
            raise IllegalMove(f"an attempt cannot move from {self.state} to {state} ({self.key.text})")
        self.state = state

    # ── the claim ──

    def claim_request(self) -> ClaimRequest:
        """Begin to claim: return the request, with a new nonce."""
        engine, job, key = self.engine, self.job, self.key
        policy, new_nonce = job.policy, engine.nonce
        self.move(CLAIMING)
        self.nonce = new_nonce()
        return ClaimRequest(
            key.id,
            key.scope.text,
            key.text,
            self.nonce,
            self.lease,
            job.fingerprint,
            job.arguments,
            policy.after_crash,
            policy.max_attempts,
            engine.owner.name,
            {**job.note, **policy.window_note} if policy.window_note else job.note,
        )

    def unprotect(self, reason: str) -> None:
        """Continue without a claim. The work gets a claim object that works as usual, but protects nothing."""
        from onceward.protocol.transitions import claim  # imported here: usually only stores need the table

        request = ClaimRequest(self.key.id, self.key.scope.text, self.key.text, b"", self.lease, note=self.job.note)
        self.move(UNPROTECTED)
        self.unprotected = reason
        self.record, _ = claim(None, request, next(_tokens))
        self.ends = math.inf

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def is_settling(self) -> bool:
        """Whether its owner is settling it, or has written the result in the caller's transaction."""
        return self.state is SETTLING or self.joined is not None

    def abandon(self) -> None:
        """Give up the claim without settling it: the lease expires."""
        if self.state is SETTLING:  # another call settles it
            return
        if self.state not in ENDED and self.state is not UNPROTECTED:
            self.move(ABANDONED)
        self.engine.heartbeat.drop(self)

    def hurry(self) -> None:
        """Shorten the retries to one more call, because the caller was cancelled or interrupted."""
        self.retry_until = min(self.retry_until, self.engine.runtime.monotonic() + self.job.policy.call_timeout)

    # ── the work ──

    def __enter__(self) -> Self:
        """Make this the current attempt."""
        outer = _current.get()
        self.outer = None if outer is None else outer()
        self._reference = ref(self)
        _current.set(self._reference)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop being the current attempt, if it still is: async fixtures may leave a block in another context."""
        if self._reference is not None and _current.get() is self._reference:
            _current.set(None if self.outer is None else ref(self.outer))

    def begin(self) -> None:
        """Note that the work begins. With `on_lost="cancel"`, it is cancelled if the key is lost."""
        if self.state is not UNPROTECTED:
            self.move(RUNNING)
            if self.job.policy.on_lost == "cancel" and self.engine.rollout.enforces:
                self.cancel_if_lost()

    def cancel_if_lost(self) -> None:
        self.canceller = self.on_lost = self.engine.runtime.canceller()

    def end(self, error: BaseException | None) -> bool:
        """Note that the work has ended. Return whether it was cancelled because the key was lost."""
        return self.canceller is not None and self.canceller.work_ended(error)

    def derived_key(self, step: str) -> str:
        if self.step is not None:
            return self.step.derived_key(step)
        return derived_key(self.key.id, self.record.cycle, step)

    def check(self) -> None:
        """Raise if the work should stop: another worker owns the key, or the lease was not renewed in time."""
        if self.inherited:
            self.refuse_inherited()
        if self.lost:
            raise LeaseLost(
                "another worker owns this key now", key=self.key.text, hint="stop: this result can no longer be stored"
            )
        if self.overdue or self.engine.runtime.monotonic() >= self.ends:
            raise LeaseOverdue("the lease was not renewed in time; a later renewal may succeed", key=self.key.text)

    def refuse_inherited(self) -> NoReturn:
        raise LeaseLost("this claim belongs to the parent process; a forked child does not own it", key=self.key.text)

    def covers(self, engine: Engine, id: bytes) -> bool:
        """Return whether this claim, or an enclosing one, holds the key in the store of `engine`."""
        attempt: Attempt | None = self
        while attempt is not None:
            holds = attempt.state not in ENDED and attempt.state is not UNPROTECTED
            if holds and attempt.key.id == id and attempt.engine.heartbeat is engine.heartbeat:
                return True
            attempt = attempt.outer
        return False

    def renewal(self, lease: int, note: dict[str, str] | None = None) -> Renewal:
        """Return the request to extend the lease; a lease of 0 ends it."""
        return Renewal(self.key.id, self.record.token, self.record.nonce, lease, note or {})


_current: ContextVar[ref[Attempt] | None] = ContextVar("onceward_current_claim", default=None)
"""A weak reference: an attempt that no live object refers to is not renewed, so that its lease expires."""

_tokens = count(1)  # of unprotected attempts: strictly growing, as with a store


def current() -> Attempt | None:
    """Return the innermost attempt whose work is running this code, or None."""
    found = _current.get()
    return None if found is None else found()


def running_here() -> list[Attempt]:
    """Return all attempts whose work is running this code, the innermost first."""
    found, attempt = [], current()
    while attempt is not None:
        found.append(attempt)
        attempt = attempt.outer
    return found
