"""The rule: what an outcome means for the delivery that led to it. Pure, and stated only here.

| the outcome                                | the delivery                                                       |
|--------------------------------------------|--------------------------------------------------------------------|
| executed, replayed, stale                  | acknowledged                                                       |
| running elsewhere                          | later: when that lease ends, or sooner, in growing steps           |
| failed, to be tried again                  | later: after `retry_delay`, else in growing steps                  |
| failed for good, or attempts used up       | dead letter; if there is none, parked and acknowledged             |
| mismatch, or it cannot be read             | dead letter; if there is none, parked and acknowledged             |
| parked (nobody knows whether it happened)  | dead letter; if there is none, acknowledged: its record is parked  |
| unknown: the record was not confirmed      | later: the record will tell                                        |
| the store is down                          | later, unless the operation says on_store_down="run"               |
| any other trouble of this process          | later                                                              |
| this process is stopping                   | at once, to somebody else                                          |

Parked, for a message, means: a PARKED record of its own tells its id, its queue and the reason, until a person resolves
it. Nothing is ever acknowledged without its effect, or such a record, or a dead letter.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from onceward.engine.error_text import message_of
from onceward.errors import ResultError, Stopping, StoreError, VersionSkew
from onceward.protocol.outcome import Common, Executed, Failed, Mismatch, Outcome, Parked, Replayed, Running, Stale

AT_LEAST: Final = 0.05
"""Seconds: what is delivered again at once, over and over, keeps everybody busy."""


class Pace(Struct, frozen=True):
    """How long to wait before the next delivery: `first` seconds, doubled each time, at most `longest`."""

    first: float = 1.0
    longest: float = 60.0

    def after(self, times: int) -> float:
        return min(self.longest, self.first * 2.0 ** min(max(times, 1) - 1, 30))


class Ack(Struct, frozen=True):
    """It is done: never again."""


class Retry(Struct, frozen=True):
    """Again, not before that many seconds."""

    seconds: float
    reason: str


class DeadLetter(Struct, frozen=True):
    """Never again, but a person has to see it: `kind` and `reason` say why. `parked`: its record says so already."""

    kind: str
    reason: str
    parked: bool = False


Ruling = Ack | Retry | DeadLetter


class Unreadable(Struct, frozen=True):
    """Instead of an outcome: the message means no work, because it cannot be read or has no key."""

    error: Exception


Result = Outcome[Any] | Unreadable | Exception
"""What a delivery led to. An exception is trouble of ours, of the store or of the machine: not of the message."""


def is_done(outcome: Result) -> bool:
    """Whether there is nothing left to do but to acknowledge it."""
    return isinstance(outcome, Executed | Replayed | Stale)


def rule(outcome: Result, deliveries: int, pace: Pace) -> Ruling:
    """What becomes of a delivery, by its outcome or what kept it from having one."""
    if is_done(outcome):
        return Ack()
    match outcome:
        case Running():
            left = pace.longest if outcome.retry_after is None else outcome.retry_after
            return Retry(max(AT_LEAST, min(left, pace.after(deliveries))), outcome.reason)
        case Failed(final=True):
            return DeadLetter(outcome.error_type or "Failed", f"attempt {outcome.attempt}: {outcome.error}")
        case Failed():
            return Retry(outcome.retry_after or pace.after(outcome.attempt or deliveries), outcome.reason)
        case Mismatch():
            which = f" (differs in: {', '.join(outcome.arguments)})" if outcome.arguments else ""
            return DeadLetter("PayloadMismatch", f"{outcome.key} came before with another payload{which}")
        case Parked():
            has_record = outcome.token > 0  # an event of the future has none
            why = f"attempt {outcome.attempt}: {outcome.error}" if has_record else outcome.error
            return DeadLetter(outcome.error_type or "Parked", why, parked=has_record)
        case Unreadable(error=OSError()):  # a registry of schemas is away, say: the message may be all right
            return Retry(pace.after(deliveries), type(outcome.error).__qualname__)
        case Unreadable():
            return DeadLetter(type(outcome.error).__qualname__, message_of(outcome.error))
        case Common():  # unknown
            return Retry(pace.after(deliveries), outcome.reason)
        case _:
            return _after_trouble(outcome, deliveries, pace)


def _after_trouble(error: Exception, deliveries: int, pace: Pace) -> Ruling:
    if isinstance(error, Stopping):
        return Retry(0.0, "stopping")
    if isinstance(error, VersionSkew):  # nothing will change before this process is upgraded
        return Retry(pace.longest, "version skew")
    if isinstance(error, StoreError):
        return Retry(pace.after(deliveries), "store down")
    if isinstance(error, ResultError):  # it was done; that its result cannot be read concerns whoever wants it
        return Ack()
    return Retry(pace.after(deliveries), type(error).__qualname__)
