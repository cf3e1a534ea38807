"""Claims as users see them, sync and async: in a `with` block, or inside a decorated function."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from onceward.engine import settle
from onceward.engine.attempt import Attempt, current
from onceward.errors import ClaimError, WrongRuntime
from onceward.protocol.note import user_notes, validate_note
from onceward.protocol.record import RecordState
from onceward.runtime.threads import ThreadRuntime, run


class BaseClaim:
    """The part of a claim that needs no store: the same for sync and async."""

    __slots__ = ("_attempt",)

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    @property
    def key(self) -> str:
        """The readable key."""
        return self._attempt.key.text

    @property
    def token(self) -> int:
        """Fencing number of this ownership: a resource that remembers the highest token can refuse late writers."""
        return self._attempt.record.token

    @property
    def attempt(self) -> int:
        """1 for the first attempt of this cycle. Crashed attempts count."""
        return self._attempt.record.attempt

    @property
    def note(self) -> dict[str, str]:
        """The metadata on the record, written by this attempt or an earlier one (see `annotate`)."""
        return user_notes(self._attempt.record.note)

    @property
    def state(self) -> RecordState:
        """PENDING until the claim is settled."""
        return self._attempt.settled_as or RecordState.PENDING

    def check(self) -> None:
        """Raise LeaseLost (or LeaseOverdue) if the work should stop. It does no I/O: call it between steps."""
        self._attempt.check()

    def derived_key(self, step: str) -> str:
        """Return an idempotency key for a remote call: the same on every attempt, another one for each `step`.

        Pass it to an API that accepts such keys. If the key of this claim is forgotten or expires, later work gets
        other derived keys.
        """
        return self._attempt.derived_key(step)

    def _checked(self, note: dict[str, str]) -> dict[str, str]:
        return validate_note(note, self._attempt.record.note, key=self.key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key}: attempt {self.attempt}, token {self.token}, {self.state}>"


class Claim(BaseClaim):
    """A claim of `Once`. Its methods raise `LeaseLost` if another worker took over."""

    __slots__ = ()

    def complete(self, value: Any = None) -> None:
        """Record `value` as the result now. If you don't call it, leaving the block completes the claim with None."""
        settle.refuse_by_hand(self._attempt)
        self._call_blocking(settle.complete(self._attempt, value))

    def complete_in(self, connection: Any, value: Any = None) -> None:
        """Record `value` inside the transaction of `connection`: effect and record commit together, or not at all."""
        settle.refuse_by_hand(self._attempt)
        self._call_blocking(settle.complete_in(self._attempt, connection, value))

    def annotate(self, **note: str) -> None:
        """Write a small `note` to the record now. It survives a takeover by another worker."""
        self._call_blocking(settle.annotate(self._attempt, self._checked(note)))

    def _call_blocking(self, work: Coroutine[Any, Any, None]) -> None:
        attempt = self._attempt
        if attempt.integration is not None:
            attempt.integration.run_blocking(work)
        elif not _is_async(attempt):
            run(work)
        else:
            work.close()
            raise WrongRuntime(
                "this claim belongs to an AsyncOnce client, and a sync call would block its event loop",
                hint="use current_async_claim() and await the call",
            )


class AsyncClaim(BaseClaim):
    """A claim of `AsyncOnce`."""

    __slots__ = ()

    async def complete(self, value: Any = None) -> None:
        """Record `value` as the result now. If you don't call it, leaving the block completes the claim with None."""
        await self._call_async(settle.complete(self._attempt, value))

    async def complete_in(self, connection: Any, value: Any = None) -> None:
        """Record `value` inside the transaction of `connection`: effect and record commit together, or not at all."""
        await self._call_async(settle.complete_in(self._attempt, connection, value))

    async def annotate(self, **note: str) -> None:
        """Write a small `note` to the record now. It survives a takeover by another worker."""
        await self._call_async(settle.annotate(self._attempt, self._checked(note)))

    async def _call_async(self, work: Coroutine[Any, Any, None]) -> None:
        integration = self._attempt.integration
        await (work if integration is None else integration.run_async(work))


def current_claim() -> Claim:
    """Return the claim that this code runs under: in a plain function, a coroutine, or a handler of any framework.

    Its methods that write to the store (`annotate`, `complete`, `complete_in`) block. In coroutines, await those of
    `current_async_claim()`.
    """
    return Claim(_current_attempt())


def current_async_claim() -> AsyncClaim:
    """Return the claim that this coroutine runs under.

    Raises:
        ClaimError: The coroutine does not run under a claim.
        WrongRuntime: The claim belongs to a sync client: use `current_claim()`.
    """
    attempt = _current_attempt()
    if not _is_async(attempt) and attempt.integration is None:
        raise WrongRuntime("this claim belongs to a sync Once client", hint="use current_claim()")
    return AsyncClaim(attempt)


def _is_async(attempt: Attempt) -> bool:
    return not isinstance(attempt.engine.runtime, ThreadRuntime)


def _current_attempt() -> Attempt:
    attempt = current()
    if attempt is None:
        raise ClaimError(
            "no claim is held here", hint="call this inside a decorated function or a `with once.claim(…)` block"
        )
    return attempt
