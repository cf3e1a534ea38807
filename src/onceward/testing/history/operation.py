"""What a history is made of: one operation is one request for one key, with the two instants that enclose it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from onceward.protocol import transitions
from onceward.protocol.record import CompletedRecord, Record
from onceward.protocol.requests import (
    Answer,
    ClaimRequest,
    Complete,
    ExpectedRecord,
    Fail,
    Park,
    Release,
    Renewal,
    Resolve,
    Verdict,
)
from onceward.protocol.transitions import purgeable


class Forget(Struct, frozen=True):
    """`forget` of one key."""

    id: bytes
    force: bool = False
    seen: ExpectedRecord | None = None


class Read(Struct, frozen=True):
    """`read` of one key."""

    id: bytes


class Scan(Struct, frozen=True):
    """One record in a page of a `scan`. What a page left out is not recorded."""

    id: bytes


class Lookup(Struct, frozen=True):
    """A `glance` that showed a result. One that showed nothing says nothing, and is not recorded."""

    id: bytes
    fingerprint: bytes


Request = ClaimRequest | Renewal | Complete | Fail | Park | Release | Resolve | Forget | Read | Scan | Lookup

LOOKS = Read | Scan | Lookup
"""What never changes anything."""

KINDS: dict[str, type[Request]] = {
    "claim": ClaimRequest,
    "renew": Renewal,
    "complete": Complete,
    "fail": Fail,
    "park": Park,
    "release": Release,
    "resolve": Resolve,
    "forget": Forget,
    "read": Read,
    "scan": Scan,
    "glance": Lookup,
}
VERBS = {kind: verb for verb, kind in KINDS.items()}


class Operation(Struct, frozen=True):
    """A request and what came of it. Instants are nanoseconds of `time.monotonic_ns`, the same for all processes.

    Without an answer the request may have taken effect or not: at any instant from `called` until `returned`, and if
    that is None, until the end of time (it may still be on its way).
    """

    by: str
    request: Request
    called: int
    returned: int | None
    answer: Answer | None
    error: str = ""

    @property
    def id(self) -> bytes:
        return self.request.id

    @property
    def verb(self) -> str:
        return VERBS[type(self.request)]


Step = tuple[Record | None, Verdict]


def _forget(record: Record | None, request: Forget, now: int) -> Step:
    return transitions.forget(record, now, force=request.force, seen=request.seen)


def _look(record: Record | None, _request: Read | Scan, _now: int) -> Step:
    return record, Verdict.ABSENT if record is None else Verdict.OK


def _lookup(record: Record | None, request: Lookup, now: int) -> Step:
    shown = record is not None and transitions.replays(record, request.fingerprint, now)
    return record, Verdict.REPLAY if shown else Verdict.ABSENT


_RULES: dict[type[Request], Callable[[Record | None, Any, int], Step]] = {
    ClaimRequest: transitions.claim,
    Renewal: transitions.renew,
    **dict.fromkeys((Complete, Fail, Park, Release, Resolve), transitions.settle),
    Forget: _forget,
    Read: _look,
    Scan: _look,
    Lookup: _lookup,
}


def outcome(record: Record | None, request: Request, now: int) -> Step:
    """What the state table says: the sequential specification. The same record object means that nothing changed."""
    return _RULES[type(request)](record, request, now)


SHOWN = ("state", "token", "attempt", "fingerprint", "result", "stored", "valid_until", "slide", "owner", "min_reader")
"""What a glance shows of a record; the fields of `CompletedRecord`."""


def glimpse(id: bytes, done: CompletedRecord) -> Record:
    """A record of which only the fields that were shown are known. A row may hold 1 for True."""
    shown: dict[str, Any] = {name: getattr(done, name) for name in SHOWN}
    return Record(id, "", "", **{**shown, "stored": bool(done.stored)})


def shows(record: Record | None, request: Request, shown: Record | None) -> bool:
    """Does the answer show this record? A glance does not show all of it."""
    if isinstance(request, Lookup) and record is not None and shown is not None:
        return all(getattr(record, name) == getattr(shown, name) for name in SHOWN)
    return record == shown


def possible(record: Record | None, now: int) -> tuple[Record | None, ...]:
    """What may stand under the key if nobody wrote: a purge, by whomever, may have taken what answers for nothing."""
    return (record, None) if record is not None and purgeable(record, now) else (record,)
