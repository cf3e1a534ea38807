"""What an application's answer means for the claim under which it worked. Colourless."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any

from onceward.engine.attempt import Attempt
from onceward.engine.ending import after_error, after_value
from onceward.engine.unclaimed import Unclaimed
from onceward.errors import StoreError
from onceward.protocol.outcome import Outcome

from .semantics import frees_key, kept, leads_elsewhere, refuses


class RequestRefused(Exception):
    """The application answered that it has not begun: 401, 403, 425 or 429."""


class Faulted(Exception):
    """The application answered 408 or 5xx: nobody knows how far it came."""


class NoAnswer(Exception):
    """The application ended without an answer."""


class Unsettled(Exception):
    """The application has answered, but its claim could not be settled: that was told, and nothing more can be."""


class AnswerTooLarge:
    """Stands for an answer that is not kept. It has no content, so that nobody can store it."""


class NotHttp:
    """Stands for an answer that no server would send: with a line break in a header, or not as long as it says."""


async def settle(
    attempt: Attempt, status: int, headers: Iterable[Iterable[bytes]], parts: list[bytes] | None
) -> Outcome[Any] | None:
    """Record the answer, or that the work is to be tried again. `parts` None: there was too much of it.

    An outcome comes back if nobody may rely on the answer. Whatever happened, this was the last word on the claim.
    """
    return judged(attempt, await settlement(attempt, status, headers, parts))


def settlement(
    attempt: Attempt, status: int, headers: Iterable[Iterable[bytes]], parts: list[bytes] | None
) -> Awaitable[Outcome[Any] | None]:
    """What does it, to be awaited. What that gives is to be `judged`."""
    if isinstance(attempt, Unclaimed):  # the test mode: there is nothing to settle
        return _nothing()
    if leads_elsewhere(status):
        return _give_back(attempt)
    if frees_key(status):
        kind = RequestRefused if refuses(status) else Faulted
        return _free(attempt, kind(f"the application answered {status}"))
    return after_value(attempt, _result(status, headers, parts))


def judged(attempt: Attempt, outcome: Outcome[Any] | None) -> Outcome[Any] | None:
    """The outcome, if nobody may rely on the answer."""
    if attempt.settled is not None or isinstance(attempt, Unclaimed):
        return None
    attempt.unconfirmed = True  # the lease has to lapse
    return outcome


async def _nothing() -> None:
    """There is nothing to settle."""


async def _free(attempt: Attempt, why: Exception) -> None:
    """The work is to be tried again. Whether that could be recorded or not, the answer stands."""
    await after_error(attempt, why)


async def _give_back(attempt: Attempt) -> None:
    """Nothing was begun, so that the key may come with the request's new path."""
    attempt.end(None)
    try:
        await attempt.release()
    except StoreError as error:
        attempt.abandon()
        attempt.engine.emit("unknown", attempt.key, attempt.record, reason="not given back", error=repr(error))


def _result(status: int, headers: Iterable[Iterable[bytes]], parts: list[bytes] | None) -> object:
    if parts is None:
        return AnswerTooLarge()
    data = kept(status, headers, parts[0] if len(parts) == 1 else b"".join(parts))
    return NotHttp() if data is None else data
