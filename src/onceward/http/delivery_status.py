"""What the outcome of a delivery means for its answer. 2xx: never send it again; everything else: do.

| outcome | answer |
|---|---|
| executed, replayed, stale | 200 `{applied, reason}`, or the handler's own `Response` |
| failed for good | 204: it is recorded, and to deliver it again would change nothing |
| failed | 500, so that it is delivered again; with `Retry-After` if it is not due yet |
| its own `Response` settles nothing (5xx, 408, 409, 425, 429) | that one, as if it had failed |
| running | 409 with `Retry-After`: whoever has it may still die |
| parked | 503: nobody knows whether it happened, and the sender keeps it until somebody has said so |
| unknown | 503: it happened, but the record was not confirmed; the next delivery finds out |
| mismatch | 422 for webhooks; 200 for brokers, which would repeat it for days (it is on record) |
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from onceward.errors import InvalidKey, NotAcquired, OncewardError, StoreError
from onceward.observe.log import log_raised
from onceward.protocol.outcome import Executed, Failed, Mismatch, Outcome, Parked, Replayed, Running, Stale

from .delivery_work import Rejected, TryAgain
from .messages import Response, problem, retry_after

SOON = 10.0
"""Seconds after which a running delivery is worth another try: most work is done long before its lease ends."""

LATER = 60.0
"""Seconds after which to ask again for what a person has to decide."""


def answer_to(outcome: Outcome[Any], *, mismatch_status: int) -> Response:
    """See the table above. The answer never tells what the handler raised, so the log does."""
    if isinstance(outcome, Failed | Parked) and not isinstance(outcome.exception, TryAgain | Rejected):
        log_raised(outcome.exception, outcome.key)
    if isinstance(outcome, Executed | Replayed | Stale):
        return outcome.value if isinstance(outcome.value, Response) else _told(outcome)
    if isinstance(outcome, Failed):
        return _failed(outcome)
    if isinstance(outcome, Running):
        left = SOON if outcome.retry_after is None else min(outcome.retry_after, SOON)
        return problem(409, outcome.reason, "somebody is at it; deliver it again", [retry_after(left)])
    if isinstance(outcome, Mismatch):
        if mismatch_status < HTTPStatus.MULTIPLE_CHOICES:  # acknowledged: its event was told as an error
            return _told(outcome)
        return problem(mismatch_status, outcome.reason, "this id came before with another body; nothing was done")
    if isinstance(outcome, Parked):
        return problem(503, outcome.reason, "it is put aside until somebody decides", [retry_after(LATER)])
    return problem(503, outcome.reason, "the store did not confirm the record; deliver it again", [retry_after(SOON)])


def _told(outcome: Outcome[Any]) -> Response:
    return Response.json({"applied": outcome.applied, "reason": outcome.reason})


def _failed(outcome: Failed[Any]) -> Response:
    if outcome.final:
        return Response(204)
    if isinstance(outcome.exception, StoreError):  # the handler's own use of the store
        return trouble(outcome.exception)
    if isinstance(outcome.exception, TryAgain):
        return outcome.exception.answer
    due = [retry_after(outcome.retry_after)] if outcome.retry_after else []
    return problem(500, outcome.reason, "the work failed; deliver it again", due)


def trouble(error: OncewardError) -> Response:
    """What we could not even ask the store. Says what kind of trouble, never what is in a record."""
    detail = "the store is in trouble; deliver it again" if isinstance(error, StoreError) else "not now"
    return problem(max(error.http_status, 500), error.code, detail, [retry_after(SOON)])


def is_trouble(error: OncewardError) -> bool:
    """Whether it is one of the errors that a sender may be told: no mistake of this program."""
    return isinstance(error, StoreError | NotAcquired) and not isinstance(error, InvalidKey)
