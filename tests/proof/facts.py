"""Comparisons of records that work for concrete and for symbolic records."""

from __future__ import annotations

from typing import Any

from onceward.protocol.record import Record, RecordState
from onceward.protocol.requests import Validity

from .logic import Symbol, all_of

TIMES = ("lease_until", "retry_at", "valid_until")
NUMBERS = ("token", "nonce", "cycle", "attempt", "max_attempts", "digest", "slide", "min_reader")
FLAGS = ("ask_first", "released", "final")


def alike(one: Record | None, other: Record | None) -> Any:
    """Whether all fields that any verb reads are equal."""
    if one is other:
        return True
    if one is None or other is None or one.state is not other.state or one.after_crash is not other.after_crash:
        return False
    equal = (getattr(one, name) == getattr(other, name) for name in (*NUMBERS, *FLAGS))
    times = (same_time(getattr(one, name), getattr(other, name)) for name in TIMES)
    return all_of(*equal, *times)


def same_ownership(one: Record, other: Record) -> Any:
    """Whether both records are the same attempt of the same owner, not a new grant."""
    names = ("token", "nonce", "cycle", "attempt", "ask_first", "released")
    return all_of(*(getattr(one, name) == getattr(other, name) for name in names))


def same_time(one: Any, other: Any) -> Any:
    return one is other if one is None or other is None else one == other


def used_up(attempt: Any, allowed: Any) -> Any:
    """0 means that attempts are not limited."""
    return all_of(allowed > 0, attempt >= allowed)


class Fingerprint:
    """A symbolic fingerprint: whether it exists, the version of its encoder, and the rest."""

    __slots__ = ("body", "encoder", "there")
    __hash__ = None  # type: ignore[assignment]  # two may turn out equal

    def __init__(self, there: Symbol, encoder: Symbol, body: Symbol) -> None:
        self.there = there
        self.encoder = encoder
        self.body = body

    def __bool__(self) -> bool:
        return bool(self.there)

    def __getitem__(self, _first: int) -> Symbol:
        return self.encoder

    def __ne__(self, other: object) -> Any:
        return unlike(self, other)


def unlike(one: Any, other: Any) -> Any:
    """Whether two fingerprints are comparable and differ."""
    here, there = _parts(one), _parts(other)
    return all_of(here[0], there[0], here[1] == there[1], here[2] != there[2])


def _parts(one: Any) -> tuple[Any, Any, Any]:
    if isinstance(one, Fingerprint):
        return one.there, one.encoder, one.body
    return bool(one), one[:1], one[1:]


def is_after_its_window(record: Record, now: Any) -> Any:
    """Whether the record is FREE or its own window has ended."""
    if record.state is RecordState.FREE:
        return True
    if record.state not in (RecordState.COMPLETED, RecordState.FAILED) or record.valid_until is None:
        return False
    return now >= record.valid_until


def still_answers(before: Record, after: Record) -> Any:
    """Whether the record still replays the same result, for at least as long."""
    if after.state is not RecordState.COMPLETED or (before.valid_until is None) != (after.valid_until is None):
        return False
    longer = before.valid_until is None or after.valid_until is None or after.valid_until >= before.valid_until
    return all_of(same_ownership(before, after), before.digest == after.digest, longer)


def end_of(validity: Validity, now: Any) -> Any:
    if validity.until is not None:
        return validity.until
    return None if validity.lasting is None else now + validity.lasting
