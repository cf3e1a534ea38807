"""Repeat requests to the store, with the same nonce and the same bytes. No other module does so.

A lost reply is not a failure: the request may have been applied. The store recognises a repeated request by its nonce
and gives the same answer. So a request that got no answer is repeated at least once, however late it is
(except a claim that our own open transaction blocks).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from onceward.errors import StoreFull, StoreUnavailable
from onceward.protocol.policy import SECOND

from .attempt import Attempt
from .engine import Engine
from .joined import blocks_itself

T = TypeVar("T")

TRANSIENT = (StoreUnavailable, StoreFull)
"""Transient store errors."""

SHORT_PAUSE = 0.005
CLAIM_REPEATS = 2  # a store that is down fails a claim quickly
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 2.0  # between the tries of a settlement

CLOSED_EARLY = "the client was closed before the work ended; close(timeout=…) waits"
"""Why a result is not recorded. The error of the closed store would suggest an outage."""


class RetryLimit:
    """How often a claim, or another request that should fail quickly, is repeated."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.repeats = 0

    def next_pause(self) -> float | None:
        """Return the seconds before the next try. None: there is none."""
        if self.repeats >= CLAIM_REPEATS or blocks_itself(self.engine):
            return None
        self.repeats += 1
        return SHORT_PAUSE * (1 + self.engine.runtime.jitter())

    def hurry(self) -> None:
        """The caller was cancelled: at most one more try."""
        self.repeats = max(self.repeats, CLAIM_REPEATS - 1)

    def report(self, error: Exception) -> None:
        """Report a repetition."""


class SettleLimit(RetryLimit):
    """Repeats a settlement until its `settle_timeout` has passed: the work is done, and should not be done again."""

    def __init__(self, attempt: Attempt, since: float, reason: str = "") -> None:
        super().__init__(attempt.engine)
        self._attempt = attempt
        self._reason = reason
        self._pause = FIRST_PAUSE
        self._until = since + attempt.job.policy.settle_time / SECOND

    def next_pause(self) -> float | None:
        runtime = self.engine.runtime
        left = min(self._until, self._attempt.retry_until) - runtime.monotonic()
        if self.repeats and (left <= 0 or self.engine.closed):
            return None
        self.repeats += 1
        pause, self._pause = self._pause * (0.5 + runtime.jitter()), min(self._pause * 2, LONGEST_PAUSE)
        return min(max(left, SHORT_PAUSE), pause)

    def hurry(self) -> None:
        self._attempt.hurry()

    def report(self, error: Exception) -> None:
        attempt = self._attempt
        attempt.asked_again = True
        self.engine.emit(
            "settle_retried",
            attempt.key,
            attempt.record,
            reason=self._reason,
            error=settle_error_text(self.engine, error),
        )


def settle_error_text(engine: Engine, error: BaseException) -> str:
    """Return why the store did not confirm a settlement, for events and logs."""
    return CLOSED_EARLY if engine.closed else repr(error)


async def ask(engine: Engine, send: Callable[[], Awaitable[T]]) -> T:
    """Send a request that should fail quickly, and repeat it if the store does not answer."""
    cancelled: BaseException | None
    try:
        answer, cancelled = await engine.shield(send())
    except BaseException as error:  # noqa: BLE001 (raised again, unless the store answers)
        answer, cancelled = await ask_again(send, error, RetryLimit(engine))
    if cancelled is not None:
        raise cancelled
    return answer


async def ask_again(
    send: Callable[[], Awaitable[T]], error: BaseException, limit: RetryLimit
) -> tuple[T, BaseException | None]:
    """Repeat a request that ended with `error`, until the store answers or the limit is reached.

    The request is repeated even if the caller is cancelled. Return the answer and the cancellation, or
    raise the cancellation with the store's error as its cause. An error that is not transient is raised again.
    """
    failure = store_error_of(error)
    if not isinstance(failure, TRANSIENT):
        raise error
    cancelled = None if failure is error else error
    if cancelled is not None:
        limit.hurry()
    try:
        answer, later = await limit.engine.shield(_repeat(send, failure, limit), limit.hurry)
    except Exception as still:
        if cancelled is not None:
            raise cancelled from still
        raise
    if cancelled is not None:
        cancelled.__cause__ = None  # the store has recovered
    return answer, cancelled or later


async def _repeat(send: Callable[[], Awaitable[T]], failure: Exception, limit: RetryLimit) -> T:
    while (pause := limit.next_pause()) is not None:
        limit.report(failure)
        await limit.engine.runtime.sleep(pause)
        try:
            return await send()
        except TRANSIENT as error:
            failure = error
    try:
        raise failure
    finally:
        del failure  # its traceback refers to this frame: avoid a reference cycle


def store_error_of(error: BaseException) -> Any:
    """Return the store's error. If the caller was cancelled meanwhile, the error is the cause of the cancellation."""
    return error if isinstance(error, Exception) else error.__cause__
