"""Claims as users hold them, in both colours: in a `with` block, or inside a decorated function."""

from __future__ import annotations

from typing import Any

from onceward.engine.attempt import Attempt, current
from onceward.errors import ClaimError, WrongRuntime
from onceward.protocol.note import checked_note, own_words
from onceward.protocol.record import RecordState
from onceward.runtime.bridge import run
from onceward.runtime.threads import ThreadRuntime


class BaseClaim:
    """What needs no store: the same in both colours."""

    __slots__ = ("_attempt", "_block")

    def __init__(self, attempt: Attempt, block: object = None) -> None:
        self._attempt = attempt
        self._block = block  # kept: a block that nobody knows any more lets its claim lapse

    @property
    def key(self) -> str:
        """The readable key."""
        return self._attempt.key.text

    @property
    def token(self) -> int:
        """Fencing number of this ownership: a resource that remembers the highest one refuses every late writer."""
        return self._attempt.record.token

    @property
    def attempt(self) -> int:
        """1 for the first attempt of this cycle; crashed ones count."""
        return self._attempt.record.attempt

    @property
    def note(self) -> dict[str, str]:
        """What was noted on the record so far, by this attempt or an earlier one."""
        return own_words(self._attempt.record.note)

    @property
    def state(self) -> RecordState:
        """PENDING until it is settled."""
        return self._attempt.settled or RecordState.PENDING

    def check(self) -> None:
        """Raise LeaseLost (or LeaseOverdue) if the work should stop. Costs nothing: call it between steps."""
        self._attempt.check()

    def derived_key(self, step: str) -> str:
        """A key for a remote call: the same on every attempt of this work, another for every step and cycle."""
        return self._attempt.derived_key(step)

    def _checked(self, note: dict[str, str]) -> dict[str, str]:
        return checked_note(note, self._attempt.record.note, key=self.key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key}: attempt {self.attempt}, token {self.token}, {self.state}>"


class Claim(BaseClaim):
    """A claim of `Once`."""

    __slots__ = ()

    def complete(self, value: Any = None) -> None:
        """Record the result now. Without it the block's end completes with None."""
        run(self._attempt.complete(value))

    def complete_in(self, connection: Any, value: Any = None) -> None:
        """Record the result inside your own transaction: effect and record commit together, or neither does."""
        run(self._attempt.complete_in(connection, value))

    def annotate(self, **note: str) -> None:
        """Write small metadata onto the record at once; it survives a take-over."""
        run(self._attempt.annotate(self._checked(note)))


class AsyncClaim(BaseClaim):
    """A claim of `AsyncOnce`."""

    __slots__ = ()

    async def complete(self, value: Any = None) -> None:
        """Record the result now. Without it the block's end completes with None."""
        await self._attempt.complete(value)

    async def complete_in(self, connection: Any, value: Any = None) -> None:
        """Record the result inside your own transaction: effect and record commit together, or neither does."""
        await self._attempt.complete_in(connection, value)

    async def annotate(self, **note: str) -> None:
        """Write small metadata onto the record at once; it survives a take-over."""
        await self._attempt.annotate(self._checked(note))


def current_claim() -> Claim:
    """The claim whose work this code is part of (blocking face; in coroutines `current_async_claim`)."""
    attempt = _held_here()
    if not isinstance(attempt.engine.runtime, ThreadRuntime):
        raise WrongRuntime("this claim belongs to AsyncOnce", hint="use current_async_claim()")
    return Claim(attempt)


def current_async_claim() -> AsyncClaim:
    """The claim whose work this coroutine is part of."""
    attempt = _held_here()
    if isinstance(attempt.engine.runtime, ThreadRuntime):
        raise WrongRuntime("this claim belongs to Once", hint="use current_claim()")
    return AsyncClaim(attempt)


def _held_here() -> Attempt:
    attempt = current()
    if attempt is None:
        raise ClaimError("no claim is held here", hint="call this inside a decorated function or a with-claim block")
    return attempt
