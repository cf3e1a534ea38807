"""Map the outcome of a delivery to a response. 2xx: do not send it again; everything else: deliver it again.

| outcome | response |
|---|---|
| executed, replayed, stale | 200 `{applied, reason}`, or the handler's own `Response` |
| failed permanently | 204: it is recorded, and another delivery would change nothing |
| failed | 500, so that it is delivered again; with `Retry-After` if it is not due yet |
| the handler's own `Response` is retryable (5xx, 408, 409, 425, 429) | that one, as if the work had failed |
| running | 409 with `Retry-After`: the worker that runs it may still crash |
| parked | 503: it is unknown whether it happened, so the sender keeps it until an operator resolves it |
| unknown | 503: it happened, but the record was not confirmed; the next delivery finds out |
| mismatch | 422 for webhooks; 200 for brokers, which would repeat it for days (it is recorded) |
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from onceward.errors import InvalidKey, NotAcquired, OncewardError, StoreError
from onceward.observe.log import log_raised
from onceward.protocol.outcome import Executed, Failed, Mismatch, Outcome, Parked, Replayed, Running, Stale

from .delivery_work import Rejected, RetryableResponse
from .messages import Response, problem, retry_after_header

RETRY_RUNNING_AFTER = 10.0
"""Seconds until a running delivery should be retried: most work is done long before its lease expires."""

RETRY_PARKED_AFTER = 60.0
"""Seconds until a parked delivery should be retried: an operator has to resolve it first."""


def response_for(outcome: Outcome[Any], *, mismatch_status: int) -> Response:
    """Return the response for an outcome (see the table above). The handler's exception is logged, never sent."""
    if isinstance(outcome, Failed | Parked) and not isinstance(outcome.exception, RetryableResponse | Rejected):
        log_raised(outcome.exception, outcome.key)
    if isinstance(outcome, Executed | Replayed | Stale):
        return outcome.value if isinstance(outcome.value, Response) else _applied_response(outcome)
    if isinstance(outcome, Failed):
        return _failure_response(outcome)
    if isinstance(outcome, Running):
        left = RETRY_RUNNING_AFTER if outcome.retry_after is None else min(outcome.retry_after, RETRY_RUNNING_AFTER)
        detail = "another worker is already processing this delivery; deliver it again later"
        return problem(409, outcome.reason, detail, [retry_after_header(left)])
    if isinstance(outcome, Mismatch):
        if mismatch_status < HTTPStatus.MULTIPLE_CHOICES:  # acknowledged; the event was logged as an error
            return _applied_response(outcome)
        return problem(
            mismatch_status, outcome.reason, "this id was delivered before with a different body; nothing was done"
        )
    if isinstance(outcome, Parked):
        detail = "this delivery is parked until an operator resolves it"
        return problem(503, outcome.reason, detail, [retry_after_header(RETRY_PARKED_AFTER)])
    detail = "the store did not confirm the record; deliver it again"
    return problem(503, outcome.reason, detail, [retry_after_header(RETRY_RUNNING_AFTER)])


def _applied_response(outcome: Outcome[Any]) -> Response:
    return Response.json({"applied": outcome.applied, "reason": outcome.reason})


def _failure_response(outcome: Failed[Any]) -> Response:
    if outcome.final:
        return Response(204)
    if isinstance(outcome.exception, StoreError):  # from the handler's own use of the store
        return temporary_error_response(outcome.exception)
    if isinstance(outcome.exception, RetryableResponse):
        return outcome.exception.response
    due = [retry_after_header(outcome.retry_after)] if outcome.retry_after else []
    return problem(500, outcome.reason, "the work failed; deliver it again", due)


def temporary_error_response(error: OncewardError) -> Response:
    """Return the response to a store error. It names the kind of error, never the content of a record."""
    detail = (
        "the store is unavailable; deliver it again"
        if isinstance(error, StoreError)
        else "the delivery cannot be processed now; deliver it again"
    )
    return problem(max(error.http_status, 500), error.code, detail, [retry_after_header(RETRY_RUNNING_AFTER)])


def is_temporary(error: OncewardError) -> bool:
    """Return whether the sender should retry after this error. Bugs and configuration errors are not temporary."""
    return isinstance(error, StoreError | NotAcquired) and not isinstance(error, InvalidKey)
