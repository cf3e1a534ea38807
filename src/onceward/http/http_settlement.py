"""Settle a claim according to the response of the application. Shared by ASGI and WSGI."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, Final

from onceward.engine.attempt import SETTLED, UNPROTECTED, Attempt
from onceward.engine.conclude import settle_raised, settle_returned
from onceward.engine.settle import release
from onceward.errors import StoreError
from onceward.protocol.outcome import Outcome
from onceward.protocol.unstored import OVER_LIMIT
from onceward.results.extensions import NotStored

from .config import IdempotencyConfig
from .statuses import RequestFailed, RequestRefused, is_redirect, says_not_started


class NoResponse(Exception):
    """The application returned without a complete response."""


INVALID_RESPONSE: Final = "the response has a line break in a header, or a wrong content length"


class SettlementFailed(Exception):
    """The application has responded, but its claim could not be settled. The event has already been emitted."""


async def settle(
    config: IdempotencyConfig,
    attempt: Attempt,
    status: int,
    headers: Iterable[Iterable[bytes]],
    parts: list[bytes] | None,
) -> Outcome[Any] | None:
    """Record the response, or that the work may be retried. `parts` is None if the response is too large to store.

    Return an outcome if the response must not be sent, because the claim could not be settled. Nothing else settles
    the claim after this call.
    """
    return outcome_if_unsettled(attempt, await record_response(config, attempt, status, headers, parts))


def record_response(
    config: IdempotencyConfig,
    attempt: Attempt,
    status: int,
    headers: Iterable[Iterable[bytes]],
    parts: list[bytes] | None,
) -> Awaitable[Outcome[Any] | None]:
    """Return the awaitable that settles the claim. Pass its result to `outcome_if_unsettled`."""
    if attempt.state is UNPROTECTED:
        return _settle_nothing()
    if attempt.state is SETTLED:  # a transaction of the handler has committed the response
        return _settle_nothing()
    if is_redirect(status):
        return _release(attempt)
    if config.frees_key(status):
        kind = RequestRefused if says_not_started(status) else RequestFailed
        return _record_failure(attempt, kind(f"the application answered {status}"))
    return settle_returned(attempt, _result(config, status, headers, parts))


def outcome_if_unsettled(attempt: Attempt, outcome: Outcome[Any] | None) -> Outcome[Any] | None:
    """Return the outcome if the claim could not be settled: then the response must not be sent."""
    return None if attempt.state is SETTLED or attempt.state is UNPROTECTED else outcome


async def _settle_nothing() -> None:
    """Do nothing: there is no claim, or it is settled."""


async def _record_failure(attempt: Attempt, why: Exception) -> None:
    """Record that the work may be retried. The response is sent whether or not that succeeds."""
    await settle_raised(attempt, why)


async def _release(attempt: Attempt) -> None:
    """Release the key, so that the client can use it with the new path. No work was started."""
    attempt.end(None)
    try:
        await release(attempt)
    except StoreError as error:
        attempt.engine.emit("unknown", attempt.key, attempt.record, reason="not given back", error=repr(error))


def _result(
    config: IdempotencyConfig, status: int, headers: Iterable[Iterable[bytes]], parts: list[bytes] | None
) -> object:
    if parts is None:
        return NotStored(f"the response is {OVER_LIMIT}")
    data = config.encode_response(status, headers, parts[0] if len(parts) == 1 else b"".join(parts))
    return NotStored(INVALID_RESPONSE) if data is None else data
