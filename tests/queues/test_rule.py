"""The rule: each outcome has exactly one settlement of the delivery."""

from __future__ import annotations

import pytest

from onceward import errors
from onceward.protocol.outcome import Common, Executed, Failed, Mismatch, Parked, Replayed, Running, Stale, Unknown
from onceward.queues.settlement import (
    MIN_RETRY_DELAY,
    Ack,
    BackoffPolicy,
    DeadLetter,
    DeliveryResult,
    DeliverySettlement,
    Retry,
    Unreadable,
    settlement_for,
)

BACKOFF = BackoffPolicy(initial=1.0, maximum=60.0)
KEY = "order:7"

CASES: dict[str, tuple[DeliveryResult, int, DeliverySettlement]] = {
    "executed": (Executed(key=KEY), 1, Ack()),
    "executed, unprotected": (Executed(key=KEY, reason="unprotected"), 1, Ack()),
    "replayed": (Replayed(key=KEY), 3, Ack()),
    "replayed, its result was not kept": (Replayed(key=KEY, stored=False), 3, Ack()),
    "stale": (Stale(key=KEY), 1, Ack()),
    "running, its lease ends soon": (Running(key=KEY, retry_after=0.5), 1, Retry(0.5, "running")),
    "running, its lease is long": (Running(key=KEY, retry_after=600.0), 3, Retry(4.0, "running")),
    "running, its lease is over": (Running(key=KEY, retry_after=0.0), 1, Retry(MIN_RETRY_DELAY, "running")),
    "running in a transaction": (Running(key=KEY, retry_after=None), 9, Retry(60.0, "running")),
    "failed": (Failed(key=KEY, attempt=2), 1, Retry(2.0, "failed")),
    "failed, with a delay": (Failed(key=KEY, attempt=2, retry_after=30.0), 1, Retry(30.0, "failed")),
    "failed often": (Failed(key=KEY, attempt=7), 1, Retry(60.0, "failed")),
    "failed, unprotected": (Failed(key=KEY, attempt=0, reason="unprotected"), 3, Retry(4.0, "unprotected")),
    "failed for good": (
        Failed(key=KEY, attempt=3, final=True, error_type="ValueError", error="no such order"),
        1,
        DeadLetter("ValueError", "attempt 3: no such order"),
    ),
    "mismatch": (
        Mismatch(key=KEY, arguments=("event",)),
        1,
        DeadLetter("PayloadMismatch", f"{KEY} was used before with another payload (differs in: event)"),
    ),
    "parked": (
        Parked(key=KEY, attempt=3, token=7, error_type="AttemptsUsedUp", error="silent"),
        1,
        DeadLetter("AttemptsUsedUp", "attempt 3: silent", parked=True),
    ),
    "an event of the future, of which nothing was kept": (
        Parked(key=KEY, reason="future_event_parked", error_type="FutureEvent", error="too far ahead"),
        1,
        DeadLetter("FutureEvent", "too far ahead"),
    ),
    "unknown": (Unknown(key=KEY), 2, Retry(2.0, "unknown")),
    "lost": (Unknown(key=KEY, lost=True), 1, Retry(1.0, "unknown")),
    "store down": (errors.StoreUnavailable("down"), 4, Retry(8.0, "store down")),
    "store full": (errors.StoreFull("full"), 1, Retry(1.0, "store down")),
    "damaged record": (errors.RecordBroken("damaged"), 4, Retry(8.0, "damaged record")),
    "a newer version's record": (errors.VersionSkew("newer"), 1, Retry(60.0, "version skew")),
    "stopping": (errors.Stopping("bye"), 1, Retry(0.0, "stopping")),
    "done, its result cannot be read": (errors.ResultCorrupt("checksum"), 1, Ack()),
    "without a key": (Unreadable(errors.MissingKey("no id")), 1, DeadLetter("MissingKey", "no id")),
    "unreadable": (Unreadable(ValueError("no JSON")), 1, DeadLetter("ValueError", "no JSON")),
    "not read, because a server was away": (Unreadable(TimeoutError("registry")), 2, Retry(2.0, "TimeoutError")),
    "no thread to keep the lease": (errors.ClaimError("no thread"), 2, Retry(2.0, "ClaimError")),
    "a bug": (TypeError("of ours, or of a store"), 1, Retry(1.0, "TypeError")),
}


@pytest.mark.mission("D1", "D5")
@pytest.mark.parametrize("case", CASES)
def test_what_becomes_of_a_delivery(case: str) -> None:
    outcome, deliveries, ruling = CASES[case]
    assert settlement_for(outcome, deliveries, BACKOFF) == ruling


def test_every_kind_of_outcome_is_ruled() -> None:
    assert {type(outcome) for outcome, _, _ in CASES.values()} >= set(Common.__subclasses__())


def test_delays_grow_up_to_the_longest_and_never_overflow() -> None:
    assert [BACKOFF.after(times) for times in (0, 1, 2, 3, 6, 7, 10**9)] == [1.0, 1.0, 2.0, 4.0, 32.0, 60.0, 60.0]
