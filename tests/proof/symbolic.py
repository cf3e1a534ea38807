"""Records, requests and system states of which only the shape is known: every number and every flag is a symbol."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from onceward.protocol.record import AfterCrash, Record, RecordState
from onceward.protocol.requests import (
    ClaimRequest,
    Complete,
    Fail,
    Park,
    Release,
    Renewal,
    Resolution,
    Resolve,
    Validity,
)

from .facts import Fingerprint
from .invariant import record_is_well_formed
from .logic import flag, number
from .system import Grant, SystemState

ID = b"one key"


def fingerprint(of: str) -> Any:
    return Fingerprint(
        flag(f"{of} has a fingerprint"), number(f"{of}.fingerprint.encoder"), number(f"{of}.fingerprint")
    )


# ── system states ───────────────────────────────────────────────────────────────────────────────────────────────


def system_states() -> Iterator[SystemState]:
    """Yield the state without a record, then one state for each shape that a record can have."""
    yield _system(None)
    for state, leased, due, ending, after_crash in product(RecordState, *((True, False),) * 3, AfterCrash):
        found = _record(state, leased=leased, due=due, ending=ending, after_crash=after_crash)
        if all(condition is not False for _, condition in record_is_well_formed(found)):
            yield _system(found)


def _record(state: RecordState, *, leased: bool, due: bool, ending: bool, after_crash: AfterCrash) -> Record:
    return Record(
        id=ID,
        scope="",
        key="",
        state=state,
        token=number("token"),
        nonce=number("nonce"),
        cycle=number("cycle"),
        attempt=number("attempt"),
        lease_until=number("lease_until") if leased else None,
        after_crash=after_crash,
        max_attempts=number("max_attempts"),
        ask_first=flag("ask_first"),
        released=flag("released"),
        fingerprint=fingerprint("record"),
        digest=number("digest"),
        final=flag("final"),
        retry_at=number("retry_at") if due else None,
        valid_until=number("valid_until") if ending else None,
        slide=number("slide"),
        min_reader=number("min_reader"),
    )


def _system(record: Record | None) -> SystemState:
    """Two grants stand for any two that were ever given: what holds for them holds for each pair."""
    return SystemState(
        record,
        now=number("now"),
        peak=number("peak"),
        real=number("real"),
        jumped=flag("jumped"),
        highest=number("highest"),
        grants=tuple(
            Grant(
                token=number(f"{name}.token"),
                nonce=number(f"{name}.nonce"),
                lease=number(f"{name}.lease"),
                ends=number(f"{name}.ends"),
                unending=flag(f"{name}.unending"),
                issued=flag(f"{name}.issued"),
                received=flag(f"{name}.received"),
                ended=flag(f"{name}.ended"),
            )
            for name in ("one", "other")
        ),
    )


def shape(system: SystemState) -> str:
    """Describe the shape of the record, as a readable name."""
    record = system.record
    if record is None:
        return "none"
    missing = [
        name
        for name, at in (("lease", record.lease_until), ("retry_at", record.retry_at), ("end", record.valid_until))
        if at is None
    ]
    return f"{record.state}, {record.after_crash.name.lower()}, no {'/'.join(missing) or 'time missing'}"


# ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────


def claims() -> Iterator[ClaimRequest]:
    for leased, after_crash in product((True, False), AfterCrash):
        yield ClaimRequest(
            ID,
            "",
            "",
            number("request.nonce"),
            number("request.lease") if leased else None,
            fingerprint("request"),
            after_crash=after_crash,
            max_attempts=number("request.max_attempts"),
        )


def renewals() -> Iterator[Renewal]:
    yield Renewal(*_ownership(), number("request.lease"))


def settlements() -> Iterator[Complete | Fail | Park | Release]:
    yield Park(*_ownership())
    yield Release(*_ownership())
    for validity in _validities():
        yield Complete(*_ownership(), digest=number("request.digest"), validity=validity)
        yield Fail(
            *_ownership(),
            final=flag("request.final"),
            known=flag("request.known"),
            retry_in=number("request.retry_in"),
            max_attempts=number("request.max_attempts"),
            validity=validity,
        )


def resolutions() -> Iterator[Resolve]:
    for resolution, validity in product(Resolution, _validities()):
        yield Resolve(ID, number("request.token"), resolution, digest=number("request.digest"), validity=validity)


def sensible() -> list[Any]:
    """Return the assumptions about every request: non-negative durations and limits, and a nonce."""
    names = ("lease", "max_attempts", "retry_in", "lasting", "slide")
    counts = [number(f"request.{name}") >= 0 for name in names]
    return [*counts, number("request.nonce") > 0, number("slide") >= 0, number("max_attempts") >= 0]


def _ownership() -> tuple[bytes, Any, Any]:
    return ID, number("request.token"), number("request.nonce")


def _validities() -> Iterator[Validity]:
    yield Validity()
    yield Validity(until=number("request.until"))
    yield Validity(lasting=number("request.lasting"), slide=number("request.slide"))
