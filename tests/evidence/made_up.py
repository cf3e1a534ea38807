"""Histories generated from the state table alone, with small numbers: nothing runs, and every order is known."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import (
    Answer,
    ClaimRequest,
    Complete,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Validity,
    Verdict,
)
from onceward.protocol.transitions import CLOCK_MARGIN, purgeable
from onceward.testing.conformance.lookup import LOOKUP_FIELDS
from onceward.testing.history import Forget, Lookup, Operation, Read, Request
from onceward.testing.history.operation import outcome, partial_record

ID = b"the key"
START = 1_000
LEASES = (3, 8)
VALIDITIES = (Validity(lasting=4), Validity(lasting=16, slide=16), Validity(lasting=16, slide=16), Validity())


def some_request(dice: Random, record: Record | None, nonces: Sequence[bytes]) -> Request:
    """Return any request that a caller could send for this record; mostly as its owner."""
    token = 1 if record is None else record.token - (dice.random() < 0.1)
    nonce = record.nonce if record is not None and dice.random() < 0.8 else dice.choice(nonces)
    number = dice.randrange(2)
    value: dict[str, Any] = {"result": b"%d" % number, "digest": b"%d" % number, "validity": dice.choice(VALIDITIES)}
    lease = None if dice.random() < 0.05 else dice.choice(LEASES)
    crash = dice.choice([AfterCrash.RERUN, *AfterCrash])
    claim = ClaimRequest(ID, "", "", dice.choice(nonces), lease, dice.choice([b"", b"\1a", b"\1b"]), after_crash=crash)
    fail = Fail(ID, token, nonce, retry_in=dice.choice([0, 4]), final=number == 0, validity=dice.choice(VALIDITIES))
    requests: list[Request] = [
        *[replace(claim, max_attempts=dice.choice([0, 2]))] * 6,
        *[Complete(ID, token, nonce, **value)] * 3,
        Renewal(ID, token, nonce, dice.choice(LEASES), {"page": str(number)}),
        fail,
        Park(ID, token, nonce),
        Release(ID, token, nonce),
        Resolve(ID, token, dice.choice(list(Resolution)), **value),
        Forget(ID, force=number == 0),
        Read(ID),
        *[Lookup(ID, dice.choice([b"", b"\1a"]))] * 2,
    ]
    return dice.choice(requests)


def sequential(
    dice: Random, length: int, *, unanswered: float = 0.0, stretch: int = 0, hours: bool = True
) -> list[Operation]:
    """Return a history with a known order: each operation has one time at which it happened.

    A share of `unanswered` requests gets no answer, whether they took effect or not. Calls begin up to `stretch` before
    that time, and return up to `stretch` after it, so that they overlap. `hours` may pass, so that records are purged.
    """
    record: Record | None = None
    now = START
    nonces = [b"%d" % number for number in range(3)]
    history: list[Operation] = []
    for _ in range(length):
        now += CLOCK_MARGIN if hours and dice.random() < 0.03 else dice.choice([0, 1, 1, 2, 5])
        if record is not None and purgeable(record, now) and dice.random() < 0.5:
            record = None
        request = some_request(dice, record, nonces)
        after, verdict = outcome(record, request, now)
        if isinstance(request, Lookup) and verdict is not Verdict.REPLAY:
            request, verdict = Read(ID), Verdict.ABSENT if record is None else Verdict.OK
        answer: Answer | None = Answer(verdict, after, now)
        if isinstance(request, Lookup) and after is not None:
            answer = Answer(verdict, partial_record(ID, after), 0)
        returned: int | None = 2 * now + dice.randint(0, stretch)
        if dice.random() < unanswered:
            answer = None
            returned = returned if dice.random() < 0.5 else None
            after = after if dice.random() < 0.6 else record
        called = 2 * now - dice.randint(0, stretch)
        history.append(Operation(f"worker {len(history)}", request, called, returned, answer))
        record = after
    if not stretch:  # one after the other: each between two instants of its own
        return [
            replace(one, called=3 * at, returned=None if one.returned is None else 3 * at + 1)
            for at, one in enumerate(history)
        ]
    return history


CORRUPTIBLE = (
    "token",
    "attempt",
    "cycle",
    "updated_at",
    "lease_until",
    "valid_until",
    "nonce",
    "result",
    "state",
    "note",
)


def corrupted(dice: Random, history: list[Operation]) -> list[Operation]:
    """Return the history with one answer that the store could not have given."""
    answered = [number for number, one in enumerate(history) if one.answer is not None]
    number = dice.choice(answered)
    answer = history[number].answer
    assert answer is not None
    kinds = ["verdict"] if answer.record is None else ["verdict", "field", "field", "other answer"]
    match dice.choice(kinds):
        case "verdict":
            wrong = replace(answer, verdict=dice.choice([one for one in Verdict if one is not answer.verdict]))
        case "field":
            assert answer.record is not None
            wrong = replace(answer, record=_bent(dice, answer.record))
        case _:
            others = [history[other].answer for other in answered if other != number] or [None]
            other = dice.choice(others)
            wrong = replace(answer, record=None if other is None else other.record)
    return [*history[:number], replace(history[number], answer=wrong), *history[number + 1 :]]


def _bent(dice: Random, record: Record) -> Record:
    name = dice.choice(
        CORRUPTIBLE if record.updated_at else LOOKUP_FIELDS
    )  # for a lookup, only a field that it returns
    value = getattr(record, name)
    bent: object
    match value:
        case bool():
            bent = not value
        case int():
            bent = value + dice.choice([-1, 1])
        case bytes() | None:
            bent = START if value is None and name.endswith("until") else b"bent"
        case str() if not isinstance(value, RecordState):
            bent = "bent"
        case dict():
            bent = {**value, "bent": "yes"}
        case _:
            bent = dice.choice([state for state in type(value) if state is not value])
    return msgspec.structs.replace(record, **{name: bent})
