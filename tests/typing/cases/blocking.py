"""What type checkers see of `Once`. Never run, only read by them; every expected error must be there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from onceward import (
    Claim,
    Entry,
    Executed,
    Failed,
    Key,
    Once,
    Outcome,
    Payload,
    RecordState,
    Replayed,
    applied,
    calendar,
    current_claim,
    verify,
)
from onceward.latest import Current, Ordering, StateEvent, deleted
from onceward.locks import HeldLock, Lock
from onceward.operations import Function, Operations
from onceward.recovery import Recovery
from onceward.sagas import Saga, Step, StepContext
from onceward.stores import MemoryStore

once = Once("memory://", app="shop", tenant="acme", lease="10m", on_running="raise")


@dataclass
class Receipt:
    number: int


# ── the signature is kept ──


@once
def charge(order: str, amount: int = 1, *, currency: str = "EUR") -> Receipt:
    return Receipt(len(order) + amount + len(currency))


@once(key="charge:{order}", window=calendar("Europe/Berlin"), lease=timedelta(minutes=5), after_crash="park")
def charge_by_key(order: str, amount: int = 1) -> Receipt:
    return Receipt(len(order) + amount)


assert_type(charge("A", 2, currency="USD"), Receipt)
assert_type(charge_by_key(order="A"), Receipt)
assert_type(charge.outcome("A"), Outcome[Receipt])
assert_type(charge.outcome("A").unwrap(), Receipt)
assert_type(charge.outcome("A").value, Receipt | None)
assert_type(charge.outcome("A").replayed, bool)
assert_type(charge.key("A"), Key)
assert_type(charge.read("A"), Entry | None)
assert_type(charge.forget("A"), bool)
as_callable: Callable[[str], Receipt] = charge
as_function: Function[[str, int], Receipt] = charge_by_key

charge(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
charge()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
charge("A", currenzy="EUR")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
charge.outcome(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
charge.key()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
charge.forget(amount="1", order="A")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
charge.outcom("A")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
wrong: int = charge("A")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


# ── outcomes narrow ──


def describe(outcome: Outcome[Receipt]) -> str:
    if isinstance(outcome, Executed):
        return f"executed at attempt {outcome.attempt}"
    if isinstance(outcome, Replayed):
        assert_type(outcome.stored, bool)
        return "replayed"
    if isinstance(outcome, Failed):
        assert_type(outcome.retry_after, float | None)
    return outcome.reason


# ── skip may return None, and says so ──


@once(on_running="skip")
def skip_running(order: str) -> Receipt:
    return Receipt(len(order))


@once(key="x:{order}", on_done="skip")
def skip_done(order: str) -> Receipt:
    return Receipt(len(order))


@once(on_running="skip", on_done="skip", lease="1m")
def skip_both(order: str) -> Receipt:
    return Receipt(len(order))


@once(on_running="raise", on_done="raise")
def skip_neither(order: str) -> Receipt:
    return Receipt(len(order))


assert_type(skip_running("A"), Receipt | None)
assert_type(skip_done("A"), Receipt | None)
assert_type(skip_both("A"), Receipt | None)
assert_type(skip_neither("A"), Receipt)
number = skip_done("A").number  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
skip_running(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ── methods ──


class Till:
    """Methods keep their signature without `self`; static ones are functions."""

    @once(key="method:{order}")
    def take(self, order: str, amount: int = 1) -> Receipt:
        return Receipt(len(order) + amount)

    @once
    def bare(self, order: str) -> int:
        return len(order)

    @once(key="skipping:{order}", on_done="skip")
    def skipping(self, order: str) -> int:
        return len(order)

    @staticmethod
    @once
    def static(order: str) -> int:
        return len(order)

    @classmethod
    @once
    def made(cls, order: str) -> int:
        return len(order)


till = Till()
assert_type(till.take("A", 2), Receipt)
assert_type(till.take.outcome("A"), Outcome[Receipt])
assert_type(till.take.key("A"), Key)
assert_type(till.bare("A"), int)
assert_type(till.skipping("A"), int | None)
assert_type(Till.static("A"), int)
assert_type(Till.take(till, "A"), Receipt)

till.take(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
till.take()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
till.take.outcome(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Till.static(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# Right when run, but the checkers do not apply @staticmethod and @classmethod to anything but plain functions.
till.static("A")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Till.made("A")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]


# ── run, outcome, map ──


def double(number: int) -> int:
    return 2 * number


assert_type(once.run("k", double, 4), int)
assert_type(once.outcome(("k", 1), double, number=4), Outcome[int])
assert_type(once.map(double, [1, 2], key="d:{number}"), list[Outcome[int]])
assert_type(once.map(charge, ["A", "B"]), list[Outcome[Receipt]])
once.run("k", double, "4")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
once.run("k", double)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
once.map(double, ["1"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ── claims, reading, transactions ──


with once.claim("k", payload={"a": 1}, note={"source": "x"}, lease="1m") as claim:
    assert_type(claim, Claim)
    assert_type(claim.token, int)
    assert_type(claim.attempt, int)
    assert_type(claim.state, RecordState)
    assert_type(claim.derived_key("charge"), str)
    claim.check()
    claim.annotate(source_path="a.pdf")
    claim.annotate(source_path=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    claim.complete(7)

with once.within(sqlite3.connect("x.db")) as tx:
    assert_type(tx.run("k", double, 4), int)
    assert_type(tx.outcome("k", double, 4), Outcome[int])
    assert_type(tx.call(charge, "A", 2), Receipt)
    tx.call(charge, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

entry = once.read("k")
if entry is not None:
    assert_type(entry.state, RecordState)
assert_type(current_claim(), Claim)
once.resolve("k", applied(7))
assert_type(once.using(tenant="other", lease="1m"), Once)
assert_type(once.forget("k", force=True), bool)
assert_type(once.purge(), int)


# ── choices are checked ──


def find(order: str) -> Any:
    return applied(order)


Once(MemoryStore(), cache=100, max_attempts=3, final=ValueError, retry_delay=lambda attempt: attempt * 2.0)
once(key=["a:{x}", "b:{y}"], fingerprint="none", after_crash=verify(find), final=(ValueError, KeyError), wait="1s")
once(key=Payload(exclude=["meta"]), tenant="{org}", version=2, retry=None, store_result=False)
once(key=find, fingerprint=["amount"], settle_timeout=None)
once(on_running="maybe")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
once(leese="1m")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
once(max_attempts="3")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
Once("memory://", on_running="skip")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
once.claim("k", lese="1m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# ── locks ──

assert_type(once.lock("sync", lease="30s", wait=0, on_lost="cancel"), Lock)
assert_type(once.lock(("account", 5)).acquire(), HeldLock)
assert_type(once.try_lock("sync"), HeldLock | None)
with once.lock("sync") as lock:
    assert_type(lock, HeldLock)
    assert_type(lock.token, int)
    assert_type(lock.taken_over, bool)
once.lock("sync", leese="30s")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
once.lock("sync", on_lost="stop")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# ── operations ──

table = Operations(mail={"key": "mail:{order}", "window": "24h", "window_from": "attempt"}, other={})
by_table = Once("memory://", operations=table)
by_mapping = Once("memory://", operations={"mail": {"key": ["a:{x}", "b:{y}"], "reasons": {"done": "sent"}}})
by_file = Once("memory://", operations="onceward.toml")


@by_table.operation("mail")
def mail(order: str, text: str = "") -> Receipt:
    return Receipt(len(order) + len(text))


@by_table.operation("mail", on_running="skip", final=ValueError)
def mail_or_skip(order: str) -> Receipt:
    return Receipt(len(order))


@by_table.operation("mail", on_done="skip")
def mail_unless_done(order: str) -> Receipt:
    return Receipt(len(order))


assert_type(mail("A", text="B"), Receipt)
assert_type(mail.outcome("A"), Outcome[Receipt])
assert_type(mail_or_skip("A"), Receipt | None)
assert_type(mail_unless_done("A"), Receipt | None)
mail(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
by_table.operation("mail", leese="1m")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
Operations(mail={"windw": "24h"})  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportArgumentType]
# ── states hold what they were declared to hold ──

receipts = once.state("receipts", Receipt, window="3d", max_clock_skew=None)
assert_type(receipts.apply("A", "2026-03-01T08:05Z", Receipt(1)), Outcome[Receipt])
assert_type(
    receipts.apply_many([StateEvent("A", Ordering(sequence=7), Receipt(1), event_id=1)]), list[Outcome[Receipt]]
)
assert_type(receipts.get("A"), Receipt | None)
assert_type(receipts.read("A"), Current[Receipt] | None)
receipts.apply_in(sqlite3.connect("x.db"), "A", ("2026-03-01T08:05Z", 7), deleted)
receipts.apply("A", "2026-03-01T08:05Z", 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
once.state("receipts", windows="3d")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
assert_type(once.state("anything").get("A"), Any | None)

# ── schedules ──


@once.schedule("*/5 8-18 * * 1-6", tz="Europe/Berlin", overlap="wait", catch_up="all", catch_up_age="2d", lease="1m")
def planned(scheduled_at: datetime) -> Receipt:
    return Receipt(scheduled_at.day)


assert_type(planned(datetime.now(UTC)), Receipt)
assert_type(planned.tick(), Outcome[Receipt])
assert_type(planned.tick("2026-03-01T08:05Z", rerun=True), Outcome[Receipt])
with once.tick("report", pattern="* * * * *", grace="5m") as ticked:
    assert_type(ticked.scheduled_at, datetime)
once.schedule("* * * * *", overlap="maybe")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
once.tick("report", leese="1m")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

# ── sagas, stored input and recovery ──


def charge_step(step: StepContext) -> Receipt:
    assert_type(step.key, str)
    return Receipt(step.attempt)


def refund_step(step: StepContext[Receipt]) -> None:
    assert_type(step.result, Receipt)
    number: int = step.result  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert_type(number, int)


def unsaid_step(step: StepContext) -> None:
    assert_type(step.result, Any)


booking = once.saga("booking", Step("charge", charge_step, undo=refund_step), key="booking:{n}", lease="1m")
assert_type(booking, Saga)
assert_type(booking(n=1), dict[str, Any])
assert_type(booking.outcome(n=1), Outcome[dict[str, Any]])
once.saga("other", Step("charge", charge_step, kind="maybe"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
once.saga("third", Step("charge", charge_step, kind="pivot"), max_attempts=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@once(store_input=True, max_input_bytes=1_000)
def stored(order: int) -> Receipt:
    return Receipt(order)


assert_type(stored(1), Receipt)
assert_type(once.recover(), Recovery)
