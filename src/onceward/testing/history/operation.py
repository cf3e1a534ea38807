"""Operations, the elements of a history: one request for one key, with the times of its call and its return."""

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
from onceward.testing.conformance.lookup import LOOKUP_FIELDS


class Forget(Struct, frozen=True):
    """`forget` of one key."""

    id: bytes
    """The id of the record."""
    force: bool = False
    """Whether to free the key even if its owner is alive."""
    seen: ExpectedRecord | None = None
    """The token and state that the operator saw. None if the change does not depend on them."""


class Read(Struct, frozen=True):
    """`read` of one key."""

    id: bytes
    """The id of the record, whether it exists or not."""


class Scan(Struct, frozen=True):
    """One record in a page of a `scan`. Records missing from a page are not recorded."""

    id: bytes
    """The id of the record that the page contained."""


class Lookup(Struct, frozen=True):
    """A `lookup` that returned a record. A lookup without a result proves nothing and is not recorded."""

    id: bytes
    """The id of the record that was found."""
    fingerprint: bytes
    """The fingerprint of the caller's payload. A lookup returns only a record with the same one."""


Request = ClaimRequest | Renewal | Complete | Fail | Park | Release | Resolve | Forget | Read | Scan | Lookup

READ_ONLY = Read | Scan | Lookup
"""Requests that never change a record."""

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
    "lookup": Lookup,
}
VERBS = {kind: verb for verb, kind in KINDS.items()}


class Operation(Struct, frozen=True):
    """A request and its result. Times are nanoseconds of `time.monotonic_ns`, which all processes share.

    Without an answer, the request may have taken effect or not, at any time from `called` until `returned`. If
    `returned` is None, it may still take effect at any later time.
    """

    by: str
    """The worker that made the call."""
    request: Request
    """What the worker asked the store to do."""
    called: int
    returned: int | None
    answer: Answer | None
    """What the store returned. None if the call raised, or if its process died first."""
    error: str = ""
    """The type and message of the exception. Empty if there was an answer, or if the process died."""

    @property
    def id(self) -> bytes:
        """The id of the record that the request is about."""
        return self.request.id

    @property
    def verb(self) -> str:
        """The kind of the request, such as `claim` or `complete`."""
        return VERBS[type(self.request)]

    @property
    def shows_whole_record(self) -> bool:
        """Whether the answer has every field of the record: not that of a lookup or of most completions."""
        return not (isinstance(self.request, Lookup) or (self.answer is not None and _omits(self.request, self.answer)))


Step = tuple[Record | None, Verdict]


def _forget(record: Record | None, request: Forget, now: int) -> Step:
    return transitions.forget(record, now, force=request.force, seen=request.seen)


def _read(record: Record | None, _request: Read | Scan, _now: int) -> Step:
    return record, Verdict.ABSENT if record is None else Verdict.OK


def _lookup(record: Record | None, request: Lookup, now: int) -> Step:
    shown = record is not None and transitions.replays(record, request.fingerprint, now)
    return record, Verdict.REPLAY if shown else Verdict.ABSENT


_RULES: dict[type[Request], Callable[[Record | None, Any, int], Step]] = {
    ClaimRequest: transitions.claim,
    Renewal: transitions.renew,
    **dict.fromkeys((Complete, Fail, Park, Release, Resolve), transitions.settle),
    Forget: _forget,
    Read: _read,
    Scan: _read,
    Lookup: _lookup,
}


def outcome(record: Record | None, request: Request, now: int) -> Step:
    """Return what the state table says: the sequential specification.

    If nothing changes, return the same record object.
    """
    return _RULES[type(request)](record, request, now)


def partial_record(id: bytes, done: CompletedRecord) -> Record:
    """Return a record with only the fields that a lookup returned. `stored` may be 1 instead of True."""
    shown: dict[str, Any] = {name: getattr(done, name) for name in LOOKUP_FIELDS}
    return Record(id, "", "", **{**shown, "stored": bool(done.stored)})


def answer_shows(record: Record | None, request: Request, answer: Answer) -> bool:
    """Return whether the answer shows this record. A lookup shows a part of it, and a completion may show nothing."""
    shown = answer.record
    if isinstance(request, Lookup) and record is not None and shown is not None:
        return all(getattr(record, name) == getattr(shown, name) for name in LOOKUP_FIELDS)
    return record == shown or _omits(request, answer)


def _omits(request: Request, answer: Answer) -> bool:
    """Return whether the store left the record out, as it may in the answer to a completion that succeeded."""
    return isinstance(request, Complete) and answer.verdict is Verdict.OK and answer.record is None


def possible_records(record: Record | None, now: int) -> tuple[Record | None, ...]:
    """Return what may be stored under the key without a write: a purge may have deleted an expired record."""
    return (record, None) if record is not None and purgeable(record, now) else (record,)
