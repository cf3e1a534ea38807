"""Decide how to settle a delivery by the outcome of its work. No I/O; the rules are stated only here.

| the outcome                                        | the delivery                                                    |
|----------------------------------------------------|-----------------------------------------------------------------|
| executed, replayed, stale                          | acknowledged                                                    |
| another worker is processing the key               | retried when that lease ends, or sooner, with backoff           |
| failed, and may be retried                         | retried after `retry_delay`, or with backoff                    |
| failed permanently, or attempts used up            | dead letter; without a queue for it, parked and acknowledged    |
| mismatch, or the message cannot be decoded         | dead letter; without a queue for it, parked and acknowledged    |
| parked (unknown whether the effect happened)       | dead letter; without a queue for it, acknowledged: the record is|
|                                                    | parked already                                                  |
| unknown: the record was not confirmed              | retried: the record then shows the outcome                      |
| the store is down                                  | retried, unless the operation declares on_store_down="run"      |
| the record is damaged                              | retried; the other messages of the batch are not affected       |
| any other error in this process                    | retried                                                         |
| this process is stopping                           | retried immediately, by another consumer                        |

A parked message has a PARKED record of its own with its id, its queue and the reason, until an operator resolves it.
A message is acknowledged only if its effect, a parked record or a dead letter exists.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from onceward.engine.error_text import message_of
from onceward.errors import RecordBroken, ResultError, Stopping, StoreError, VersionSkew
from onceward.protocol.outcome import Common, Executed, Failed, Mismatch, Outcome, Parked, Replayed, Running, Stale

MIN_RETRY_DELAY: Final = 0.05
"""Seconds. Immediate redelivery in a loop would keep all consumers busy."""


class BackoffPolicy(Struct, frozen=True):
    """How long to wait before the next delivery: `initial` seconds, doubled each time, up to `maximum`."""

    initial: float = 1.0
    maximum: float = 60.0

    def after(self, times: int) -> float:
        return min(self.maximum, self.initial * 2.0 ** min(max(times, 1) - 1, 30))


class Ack(Struct, frozen=True):
    """Done: the broker must not deliver it again."""


class Retry(Struct, frozen=True):
    """Deliver it again after this many seconds."""

    seconds: float
    reason: str


class DeadLetter(Struct, frozen=True):
    """Do not retry: an operator must look at it. `kind` and `reason` say why; `parked`: the record is parked."""

    kind: str
    reason: str
    parked: bool = False


DeliverySettlement = Ack | Retry | DeadLetter


class Unreadable(Struct, frozen=True):
    """Takes the place of an outcome if the message cannot be decoded or has no key."""

    error: Exception


DeliveryResult = Outcome[Any] | Unreadable | Exception
"""The result of processing a delivery. An exception means a failure of this process, the store or the machine, not of
the message."""


def is_done(outcome: DeliveryResult) -> bool:
    """Return whether the delivery only needs to be acknowledged."""
    return isinstance(outcome, Executed | Replayed | Stale)


def settlement_for(outcome: DeliveryResult, deliveries: int, backoff: BackoffPolicy) -> DeliverySettlement:
    """Return how to settle a delivery, given its outcome or the error that prevented one."""
    if is_done(outcome):
        return Ack()
    match outcome:
        case Running():
            left = backoff.maximum if outcome.retry_after is None else outcome.retry_after
            return Retry(max(MIN_RETRY_DELAY, min(left, backoff.after(deliveries))), outcome.reason)
        case Failed(final=True):
            return DeadLetter(outcome.error_type or "Failed", f"attempt {outcome.attempt}: {outcome.error}")
        case Failed():
            return Retry(outcome.retry_after or backoff.after(outcome.attempt or deliveries), outcome.reason)
        case Mismatch():
            differences = f" (differs in: {', '.join(outcome.arguments)})" if outcome.arguments else ""
            return DeadLetter("PayloadMismatch", f"{outcome.key} was used before with another payload{differences}")
        case Parked():
            has_record = outcome.token > 0  # an event dated in the future has none
            why = f"attempt {outcome.attempt}: {outcome.error}" if has_record else outcome.error
            return DeadLetter(outcome.error_type or "Parked", why, parked=has_record)
        case Unreadable(error=OSError()):  # for example, an unreachable schema registry: the message may be valid
            return Retry(backoff.after(deliveries), type(outcome.error).__qualname__)
        case Unreadable():
            return DeadLetter(type(outcome.error).__qualname__, message_of(outcome.error))
        case Common():  # unknown
            return Retry(backoff.after(deliveries), outcome.reason)
        case _:
            return _settlement_after_error(outcome, deliveries, backoff)


def _settlement_after_error(error: Exception, deliveries: int, backoff: BackoffPolicy) -> DeliverySettlement:
    if isinstance(error, Stopping):
        return Retry(0.0, "stopping")
    if isinstance(error, VersionSkew):  # retrying cannot succeed before this process is upgraded
        return Retry(backoff.maximum, "version skew")
    if isinstance(error, RecordBroken):
        return Retry(backoff.after(deliveries), "damaged record")
    if isinstance(error, StoreError):
        return Retry(backoff.after(deliveries), "store down")
    if isinstance(error, ResultError):  # the work is done; only callers that want its result are affected
        return Ack()
    return Retry(backoff.after(deliveries), type(error).__qualname__)
